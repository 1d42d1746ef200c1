"""ui: the MLflow UI of the pipeline's runs, on this machine's loopback address only.

make ui                   then open http://127.0.0.1:5000
make ui ARGS="--port 5001"
"""

import os
import sys
from typing import Any

from hydra import compose, initialize_config_dir

from bertline.foundation.errors import BertlineError
from bertline.foundation.progress import say
from bertline.orchestration.config import SECTIONS, pipeline_config
from composition import CONF, plain


def main(arguments: list[str]) -> None:
    """Replace this process by the MLflow server, or print where the runs are."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed: dict[str, Any] = plain(compose("config"))
    tracking = pipeline_config({key: composed[key] for key in SECTIONS}).tracking
    if tracking.uri.startswith(("http://", "https://")):
        say(f"runs are recorded by the server at {tracking.uri}; open that address")
        return
    # The start page of MLflow 3 shows language-model traces; this address shows the training runs.
    say("open http://127.0.0.1:5000/#/experiments/1/runs?workflowType=machine_learning   (Ctrl-C ends)")
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", tracking.uri, "--host", "127.0.0.1"]
    os.execv(sys.executable, [*command, *arguments])


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BertlineError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
