"""busy: who holds DVC's lock, and what to do, after DVC said that something is busy.

python pipelines/busy.py
python pipelines/busy.py --quiet     # says nothing if DVC is not busy, for `make repro`
"""

import on_ctrl_c  # noqa: F401

# isort: split
import sys
from pathlib import Path

from bertline.foundation.progress import say
from bertline.orchestration.dvc_lock import explanation
from bertline.orchestration.stopping import in_one_line


def main(arguments: list[str]) -> None:
    """Print the explanation."""
    why = explanation(Path(__file__).resolve().parent.parent)
    if why is not None:
        say(why)
    elif "--quiet" not in arguments:
        say("DVC is not busy: run the same command again.")


if __name__ == "__main__":
    in_one_line(lambda: main(sys.argv[1:]))
