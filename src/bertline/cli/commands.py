"""Subcommands of a few lines each."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from bertline.cli.composition import composing
from bertline.config import sections_in
from bertline.foundation.errors import MachineError
from bertline.foundation.progress import say


@composing()
def doctor(composed: dict[str, Any]) -> None:
    """Check a machine before the first run on it; the first command on a new cluster.

        bertline doctor                                        this machine and the present configuration
        bertline doctor model=base runtime.num_devices=8       as a run with these choices would use it
        srun --nodes=2 --ntasks-per-node=8 bertline doctor     every task checks, the first one prints

    A line is ok, or RED with the sentence that fixes it. The exit status is 0 if nothing is red, else 1. What is
    written for a trial is deleted.
    """

    from bertline.doctor import examine

    status = examine(sections_in(composed))
    sys.stdout.flush()
    os._exit(status)  # whatever hangs in its threads


@composing()
def send(composed: dict[str, Any]) -> None:
    """Send to the tracking server what it did not take while stages ran, each record once.

    bertline send                                      all run folders below runs/
    bertline send runtime.runs_folder=/scratch/runs
    """
    from bertline.tracking.sending import send_all
    from bertline.tracking.tracked_runs import RUNS_NAME

    folders = sorted(path.parent for path in Path(sections_in(composed).runtime.runs_folder).glob(f"*/*/{RUNS_NAME}"))
    if unsent := send_all(folders):
        raise MachineError(
            f"the tracking server lacks records of {len(unsent)} of {len(folders)} run folders: "
            f"{', '.join(map(str, unsent))}. Run this again when it can be reached."
        )
    say(f"the tracking server has everything of {len(folders)} run folders")


@composing("ui")
def ui(composed: dict[str, Any]) -> None:
    """Print the addresses of prepared views, and serve MLflow on this machine's loopback address until Ctrl-C.

        bertline ui                    all runs, the newest report, the best models, trials
        bertline ui port=5001

    If tracking.uri is a server, its addresses are printed. The exit status is that of `mlflow ui`.
    """
    from bertline.tracking.registry import prepared_pages

    config, port = sections_in(composed), composed["port"]
    tracking = config.tracking
    is_remote = tracking.uri.startswith(("http://", "https://"))
    address = tracking.uri.rstrip("/") if is_remote else f"http://127.0.0.1:{port}"
    prefix, champion = f"{config.export.model_name}-", config.export.champion_alias
    pages = prepared_pages(tracking, address, prefix=prefix, champion=champion)
    if is_remote:
        _show(pages)
        return
    command = ["mlflow", "ui", "--backend-store-uri", tracking.uri, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--uvicorn-opts", "--log-level warning"]  # a line for every request would bury the addresses
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}
    # `mlflow ui` starts processes of its own: a signal is for all of them.
    with subprocess.Popen([sys.executable, "-m", *command], env=quiet, start_new_session=True) as server:
        try:
            while server.poll() is None and not _answers(address):
                time.sleep(0.2)
            _show(pages)
            sys.exit(server.wait())
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)


def _show(pages: Sequence[tuple[str, str]]) -> None:
    width = max(len(title) for title, _ in pages)
    for title, address in pages:
        say(f"{title:{width}}  {address}")
    say("(MLflow's plain start page is for language-model traces; these addresses choose its model training pages)")


def _answers(address: str) -> bool:
    try:
        urlopen(address, timeout=1).close()
    except OSError:
        return False
    return True
