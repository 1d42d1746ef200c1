"""doctor: check a machine before the first run on it; the first command on a new cluster.

    make doctor                                                  this machine and the present configuration
    make doctor ARGS="model=base runtime.num_devices=8"          as a run with these choices would use it
    srun --nodes=2 --ntasks-per-node=8 make doctor ARGS="..."    every task checks, the first one prints
    make doctor ARGS="--json"                                    for programs

A line is ok, or RED with the sentence that fixes it. The exit status is 0 if nothing is red, else 1. What is written
for a trial is deleted.
"""

import on_ctrl_c  # noqa: F401

# isort: split
import os
import sys
from typing import Any

from bertline.doctor import examine
from bertline.orchestration.config import SECTIONS, pipeline_config
from composition import recipe

AS_JSON = "--json" in sys.argv


def main(composed: dict[str, Any]) -> None:
    """Examine this machine and end the process, whatever hangs in its threads."""
    status = examine(pipeline_config({key: composed[key] for key in SECTIONS}), as_json=AS_JSON)
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.argv[1:] = [argument for argument in sys.argv[1:] if argument != "--json"]
    recipe(main)()
