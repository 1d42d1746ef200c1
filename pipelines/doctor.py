"""doctor: check a machine before the first run on it; the first command on a new cluster.

    make doctor                                                  this machine and the present configuration
    make doctor ARGS="model=base runtime.num_devices=8"          as a run with these choices would use it
    srun --nodes=2 --ntasks-per-node=8 make doctor ARGS="..."    every task reports, one table is printed
    make doctor ARGS="--json"                                    for programs

A line is green (ok), red, advice (note), or about something that the configuration does not use (-). Red lines end with
what to do. The exit status is 0 if nothing is red, else 1. Nothing is changed: what is written for a trial is deleted.
"""

import time

_STARTED_S = time.monotonic()

import on_ctrl_c  # noqa: E402, F401

# isort: split
import json  # noqa: E402
import os  # noqa: E402
import shutil  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, NoReturn  # noqa: E402

from bertline.doctor.examination import Examination, works_elsewhere  # noqa: E402
from bertline.doctor.limits import Deadline  # noqa: E402
from bertline.doctor.meeting import place_of, ranks_to_start  # noqa: E402
from bertline.doctor.report import as_data, exit_status, rows_of, table  # noqa: E402
from bertline.doctor.together import examine  # noqa: E402
from bertline.foundation.errors import MachineError  # noqa: E402
from bertline.orchestration.config import SECTIONS, pipeline_config  # noqa: E402
from composition import CONF, recipe  # noqa: E402

# All is over within a minute, unless the imports alone take half of one, as from a cold network file system.
_LIMIT_S, _LIMIT_OF_CHECKS_S = 55.0, 35.0
_WIDTH = 100
_JSON = "--json"
AS_JSON = _JSON in sys.argv
OTHERS = [argument for argument in sys.argv[1:] if argument != _JSON]


def main(composed: dict[str, Any]) -> None:
    """Examine this rank, print the table on rank 0, and end the process."""
    config = pipeline_config({key: composed[key] for key in SECTIONS})
    elsewhere = works_elsewhere(config.runtime, os.environ)
    started = start_ranks([] if elsewhere else ranks_to_start(config.runtime, os.environ))
    place = place_of(os.environ)
    deadline = Deadline(max(_STARTED_S + _LIMIT_S, time.monotonic() + _LIMIT_OF_CHECKS_S))
    examination = Examination(config, place, CONF.parent, deadline)
    try:
        gathered = examine(examination)
    except (MachineError, TimeoutError) as error:
        message = str(error) if isinstance(error, MachineError) else f"rank {place.ranks.rank}: rank 0 has gone"
        print(f"error: {message}", file=sys.stderr, flush=True)
        end(1, started)
    if gathered is None:
        end(0, started)
    rows, took_s = rows_of(gathered), time.monotonic() - _STARTED_S
    if AS_JSON:
        print(json.dumps(as_data(rows, reporters=[one for one, _ in gathered], took_s=took_s), indent=1))
    else:
        runtime = config.runtime
        title = (
            f"doctor on {place.host}: runtime.device={runtime.device}, num_devices={runtime.num_devices}, "
            f"num_nodes={runtime.num_nodes}, num_workers={runtime.num_workers}"
        )
        on_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if on_terminal else _WIDTH
        colour = on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        print(table(rows, title=title, took_s=took_s, width=width, colour=colour))
    end(exit_status(rows), started)


def start_ranks(variables: list[dict[str, str]]) -> "list[subprocess.Popen[bytes]]":
    """Become the first of these ranks and start the others, with the same arguments."""
    if not variables:
        return []
    own, *others = variables
    command = [sys.executable, str(Path(__file__).resolve()), *OTHERS]
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    started = [subprocess.Popen(command, env={**os.environ, **one}, **quiet) for one in others]
    os.environ.update(own)
    return started


def end(status: int, started: "list[subprocess.Popen[bytes]]") -> NoReturn:
    """End this process and those it started, whatever hangs in their threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    for process in started:
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            process.kill()
    os._exit(status)


if __name__ == "__main__":
    sys.argv[1:] = OTHERS
    recipe(main)()
