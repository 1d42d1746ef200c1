"""The data stages of the default preset, as `dvc repro` runs them, print no warning."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import smoke

Run = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.slow


def test_the_data_stages_of_the_default_run_print_no_warning(tmp_path: Path, run: Run) -> None:
    folder = smoke.clone(tmp_path / "clone", experiment="docs_tiny")
    made = run(folder, "dvc", "repro", "examples")
    assert made.returncode == 0, made.stdout + made.stderr
    # Ours; DVC's own begin with a capital.
    assert not re.findall(r"^warning: .*", made.stdout + made.stderr, flags=re.MULTILINE)
    assert "examples: artifacts/examples" in made.stdout
    manifest = json.loads((folder / "artifacts/examples/manifest.json").read_text())
    assert list(manifest["lengths"]) == ["64"]
