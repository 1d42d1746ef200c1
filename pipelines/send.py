"""send: send to the tracking server what it did not take before (runs/unsent), each record once.

python pipelines/send.py
python pipelines/send.py tracking.uri=http://127.0.0.1:5000     # for stages that were run by hand with this address
"""

import on_ctrl_c  # noqa: F401

# isort: split
from typing import Any

from bertline.foundation.errors import MachineError
from bertline.foundation.progress import say
from bertline.orchestration.config import SECTIONS, pipeline_config
from bertline.tracking.config import masked
from composition import recipe


def main(composed: dict[str, Any]) -> None:
    """Send, and say what was sent; fail if something is left."""
    tracking = pipeline_config({key: composed[key] for key in SECTIONS}).tracking
    from bertline.tracking.mlflow_tracker import send_kept  # imports MLflow, which takes seconds

    sent, left = send_kept(tracking)
    target = masked(tracking.uri)
    if left:
        raise MachineError(
            f"{target} did not take the records of {left} command(s). They are kept in runs/unsent: run this when "
            "it can be reached again."
        )
    say(f"{target} has the records of {sent} command(s) now" if sent else f"nothing is unsent to {target}")


if __name__ == "__main__":
    recipe(main)()
