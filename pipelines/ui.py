"""ui: the MLflow UI of the pipeline's runs, on this machine's loopback address only, and addresses of prepared views.

make ui                         prints addresses: the report, pretraining curves, best models, failed trials
make ui ARGS="--open"           opens them in a browser
make ui ARGS="--port 5001"
"""

import on_ctrl_c  # noqa: F401

# isort: split
import argparse
import os
import signal
import subprocess
import sys
import time
import webbrowser
from contextlib import suppress
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from hydra import compose, initialize_config_dir

from bertline.foundation.progress import say
from bertline.orchestration.config import SECTIONS, PipelineConfig, pipeline_config
from bertline.orchestration.stopping import in_one_line
from bertline.tracking.views import ModelNames, View, prepared_views
from composition import CONF, plain

_START_S = 300.0


def main(arguments: list[str]) -> int:
    """Print the views, then serve them until Ctrl-C, or name the server that does; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--open", action="store_true", help="open the views in a browser")
    parser.add_argument("--port", type=int, default=5000, help="port on the loopback address")
    parsed, others = parser.parse_known_args(arguments)  # what is left is for `mlflow ui`
    config = _config()
    tracking = config.tracking
    names = ModelNames(prefix=f"{config.export.model_name}-", champion=config.export.champion_alias)
    if tracking.uri.startswith(("http://", "https://")):
        say(f"runs are recorded by the server at {tracking.uri}")
        _show(prepared_views(tracking, tracking.uri.rstrip("/"), names), opened=parsed.open)
        return 0
    views = prepared_views(tracking, f"http://127.0.0.1:{parsed.port}", names)
    command = ["mlflow", "ui", "--backend-store-uri", tracking.uri, "--host", "127.0.0.1", "--port", str(parsed.port)]
    command += ["--uvicorn-opts", "--log-level warning"]  # a line for every request would bury the addresses
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}
    # `mlflow ui` starts processes of its own: a signal is for all of them.
    with subprocess.Popen([sys.executable, "-m", *command, *others], env=quiet, start_new_session=True) as server:
        try:
            _wait(server, views[0].address)
            _show(views, opened=parsed.open)
            return server.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)


def _config() -> PipelineConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed: dict[str, Any] = plain(compose("config"))
    return pipeline_config({key: composed[key] for key in SECTIONS})


def _show(views: list[View], *, opened: bool) -> None:
    width = max(len(view.title) for view in views)
    for view in views:
        say(f"{view.title:{width}}  {view.address}")
    say("(MLflow's plain start page is for language-model traces; these addresses choose its model training pages)")
    if opened:
        for view in views:
            webbrowser.open(view.address)


def _wait(server: "subprocess.Popen[bytes]", address: str) -> None:
    """Wait until the server answers or has ended."""
    started = time.monotonic()
    while server.poll() is None and time.monotonic() - started < _START_S:
        try:
            urlopen(address.partition("#")[0], timeout=1).close()
            return
        except (URLError, OSError):
            time.sleep(0.2)


if __name__ == "__main__":
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    in_one_line(lambda: main(sys.argv[1:]))
