"""ui: MLflow on prepared views of the pipeline's runs, on this machine's loopback address only."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
import webbrowser
from contextlib import suppress
from urllib.error import URLError
from urllib.request import urlopen

from hydra import compose, initialize_config_dir

from bertline.cli.composition import plain, sections_in
from bertline.cli.project import conf_folder
from bertline.config import PipelineConfig
from bertline.foundation.progress import say
from bertline.tracking.views import ModelNames, View, prepared_views

_START_S = 300.0


def ui(arguments: list[str]) -> int:
    """Print the addresses of prepared views, and serve MLflow on this machine's loopback address until Ctrl-C.

        bertline ui                    the report, pretraining curves, best models, failed trials
        bertline ui --open             opens them in a browser
        bertline ui --port 5001

    Other options are handed to `mlflow ui`. If tracking.uri is a server, its addresses are printed. The exit status is
    that of `mlflow ui`.
    """
    parser = argparse.ArgumentParser(prog="bertline ui", add_help=False)
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--port", type=int, default=5000)
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
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return sections_in(plain(compose("config")))


def _show(views: list[View], *, opened: bool) -> None:
    width = max(len(view.title) for view in views)
    for view in views:
        say(f"{view.title:{width}}  {view.address}")
    say("(MLflow's plain start page is for language-model traces; these addresses choose its model training pages)")
    if opened:
        for view in views:
            webbrowser.open(view.address)


def _wait(server: subprocess.Popen[bytes], address: str) -> None:
    """Wait until the server answers or has ended."""
    started = time.monotonic()
    while server.poll() is None and time.monotonic() - started < _START_S:
        try:
            urlopen(address.partition("#")[0], timeout=1).close()
            return
        except (URLError, OSError):
            time.sleep(0.2)
