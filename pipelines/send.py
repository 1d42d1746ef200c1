"""send: send to the tracking server what it did not take while stages ran, each record once.

python pipelines/send.py                       # all run folders below runs/
python pipelines/send.py runtime.runs_folder=/scratch/runs
"""

import on_ctrl_c  # noqa: F401

# isort: split
from pathlib import Path
from typing import Any

from bertline.foundation.errors import MachineError
from bertline.foundation.progress import say
from bertline.orchestration.config import SECTIONS, pipeline_config
from bertline.tracking.record import RECORD_NAME
from bertline.tracking.sending import send_all
from composition import recipe


def main(composed: dict[str, Any]) -> None:
    """Send every run folder to the server that its stage named; fail if something is left."""
    runs = Path(pipeline_config({key: composed[key] for key in SECTIONS}).runtime.runs_folder)
    folders = sorted(path.parent for path in runs.glob(f"*/*/{RECORD_NAME}"))
    if left := send_all(folders):
        names = ", ".join(map(str, left))
        raise MachineError(
            f"the tracking server lacks records of {len(left)} of {len(folders)} run folders: {names}. Run this again "
            "when it can be reached."
        )
    say(f"the tracking server has everything of {len(folders)} run folders")


if __name__ == "__main__":
    recipe(main)()
