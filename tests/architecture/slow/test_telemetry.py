"""Nothing phones home: telemetry of other libraries is off in every entry point, before they are imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import bertline

ROOT = Path(__file__).resolve().parents[3]


def without_choices(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in bertline.NO_TELEMETRY}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), **more}


def test_the_libraries_themselves_say_that_it_is_off() -> None:
    code = (
        "import bertline, bertline.tracking.store\n"
        "from huggingface_hub import constants\n"
        "from mlflow.telemetry.utils import is_telemetry_disabled\n"
        "print(constants.HF_HUB_DISABLE_TELEMETRY, is_telemetry_disabled())"
    )
    # Continuous integration alone turns MLflow's off, and so would hide that nothing else does.
    environment = {name: value for name, value in without_choices().items() if name not in ("CI", "GITHUB_ACTIONS")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
