"""What `make ui` shows as registered models is what a program loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import smoke

EVERY_VERSION = """
import json, mlflow
mlflow.set_tracking_uri("sqlite:///runs/mlflow.db")
found = {}
for version in mlflow.MlflowClient().search_model_versions():
    loaded = mlflow.pyfunc.load_model(f"models:/{version.name}/{version.version}")
    given, answer = loaded.input_example, loaded.predict(loaded.input_example)
    promised = loaded.metadata.signature.outputs.input_names()
    found[f"{version.name}/{version.version}"] = [len(given), len(answer), promised == list(answer.columns)]
print(json.dumps(found))
"""


def test_every_version_predicts_its_input_example_as_its_signature_says(pipelines: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", EVERY_VERSION]
    done = subprocess.run(
        command, cwd=pipelines, env=smoke.environment(pipelines), capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    names = [
        "bertline",
        *(f"bertline-{task}" for task in ("docs_library", "docs_match", "docs_parameters", "docs_search")),
    ]
    assert set(found) == {f"{name}/1" for name in names}
    for version, (given, answered, as_signed) in found.items():
        assert given > 0, version
        assert answered >= given, version  # a search answers a query with several documents
        assert as_signed, version
