"""What bertline relies on in MLflow. A failure here says what in `bertline.tracking` an upgrade touches."""

from __future__ import annotations

import subprocess
import sys


def test_telemetry_is_on_unless_the_environment_says_otherwise_before_the_import() -> None:
    code = "import os, {first}mlflow.telemetry.utils as u; print(u.is_telemetry_disabled())"
    kept = {"PATH": "/usr/bin:/bin"}
    found = [
        subprocess.run(
            [sys.executable, "-c", code.format(first=first)], env=kept, capture_output=True, text=True, check=True
        ).stdout.strip()
        for first in ("", "bertline.tracking.store, ")
    ]
    assert found == ["False", "True"]
