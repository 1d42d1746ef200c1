"""Several devices: torchrun's agent in the recipe's process, and what each rank is, also under srun.

A rank is `python -m bertline.run.ranks RUN_FOLDER`. It reads nothing but the run folder and
the inputs named there, so that a queued or resumed job never sees a later configuration. The first rank holds the run
folder's lock and writes its status; the recipe, or the job, reads that.
"""

import signal

from bertline.foundation.signals import RECEIVED, STOP_SIGNALS, hold_signals

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback while the imports run
    hold_signals()

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from bertline.foundation.errors import BertlineError
from bertline.foundation.progress import say
from bertline.foundation.work import Work
from bertline.run.folder import (
    RESULT_NAME,
    Status,
    do_work,
    finished_status,
    held,
    is_locked,
    read_frozen,
    read_status,
    work_of,
)
from bertline.run.stopping import stop_on_signals
from bertline.stages.base import Stage
from bertline.stages.registry import stage_named
from bertline.training.config import RuntimeConfig
from bertline.training.environment import Node, adopt_srun_ranks, outside_step

TO_BE_REQUEUED = 85
"""Exit status of a rank that was asked to stop and can be resumed."""
JOINS = "BERTLINE_JOIN"
"""Set in the tasks of a job array: each leads the work, or takes a share of what another one leads."""
_LOOK_S = 1.0
FILE_SYSTEM_LAG_S = 15.0
"""On a file system that machines share, a new file may become visible only some time after it was written."""


def run_on_devices(folder: Path, runtime: RuntimeConfig, node: Node) -> Status:
    """Run the work with one rank for each device of this machine; return the status when all have ended.

    Signals to stop go to the ranks, which save and end; torchrun's agent sees them end well.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    alone = node.num_nodes == 1
    config = LaunchConfig(
        min_nodes=node.num_nodes,
        max_nodes=node.num_nodes,
        nproc_per_node=runtime.num_devices,
        rdzv_backend="c10d" if alone else "static",
        rdzv_endpoint="localhost:0" if alone else f"{node.address}:{node.port}",
        rdzv_configs={} if alone else {"rank": node.rank},
        # Machines whose configuration, inputs or code differ have other folders, so they never
        # train together.
        run_id=folder.name,
        max_restarts=0,
        signals_to_handle="SIGQUIT",
    )
    os.environ.setdefault("TORCHELASTIC_LOG_LEVEL", "CRITICAL")  # the status says more
    if not alone:
        say(f"node {node.rank} of {node.num_nodes} works on {folder}; all meet at {node.address}:{node.port}")
    for name in set(os.environ) - set(outside_step(os.environ)):
        del os.environ[name]
    with _signals_passed_on(), suppress(ChildFailedError):
        elastic_launch(config, sys.executable)("-m", "bertline.run.ranks", str(folder))
    until = time.monotonic() + FILE_SYSTEM_LAG_S
    while (status := read_status(folder)).state in ("new", "running") and not node.is_first:
        if time.monotonic() > until:
            raise BertlineError(
                f"the processes of node {node.rank} ended, and the first node has not said how the run did. All nodes "
                f"must be started, with the same files, code and configuration, and reach port {node.port} of "
                f"{node.address}. Then run the same command again on every node"
            )
        time.sleep(_LOOK_S)
    return status


@contextmanager
def _signals_passed_on() -> Iterator[None]:
    """Send signals to stop to the ranks as well, which save and end; a second Ctrl-C kills them."""

    def pass_on(number: int, frame: Any) -> None:
        at_once = RECEIVED.note(number)
        for rank in psutil.Process().children():
            with suppress(psutil.NoSuchProcess):
                rank.send_signal(signal.SIGKILL if at_once else number)

    before = {number: signal.signal(number, pass_on) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(folder: Path) -> int:
    """Be a rank; returns the exit status of the process."""
    adopt_srun_ranks(os.environ)
    stop_on_signals()
    threading.Thread(target=_stop_without_parent, args=(os.getppid(),), name="parent", daemon=True).start()
    try:
        if int(os.environ.get("RANK", "0")) > 0:
            stage, work = _stage_and_work(folder)
            stage.build(work)
        elif JOINS in os.environ:
            _lead_or_join(folder)
        else:
            _lead(folder)
    except KeyboardInterrupt as error:
        if JOINS in os.environ:
            say(f"this task lets go of what it had in progress: {error}")
        # torchrun would end the other ranks, which are saving still.
        return 0 if "TORCHELASTIC_RUN_ID" in os.environ else TO_BE_REQUEUED
    except BertlineError as error:
        print(f"error: rank {os.environ.get('RANK', '0')}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _stage_and_work(folder: Path) -> tuple[Stage, Work]:
    frozen, config = read_frozen(folder)
    return stage_named(frozen["stage"]), work_of(frozen, config, folder, folder / RESULT_NAME)


def _lead(folder: Path) -> None:
    """Do the work of a run folder, unless it is finished."""
    with held(folder):
        if finished_status(folder) is None:
            do_work(folder)


def _lead_or_join(folder: Path) -> None:
    """Lead the work of a run folder, or take a share of it while another machine leads."""
    stage, work = _stage_and_work(folder)
    while read_status(folder).state not in ("finished", "failed"):
        if not is_locked(folder):
            _lead(folder)
        elif stage.join(work, is_led=lambda: is_locked(folder)):
            return


def _stop_without_parent(parent: int) -> None:
    """Ask this process to stop when the agent that started it is gone, killed without a chance to say so."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    exit_status = main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(exit_status)  # whatever waits for a lost rank in the threads of gloo or NCCL
