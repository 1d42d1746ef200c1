"""The data stages of the default preset, as `dvc repro` runs them, print no warning.

On four of its packages: reading all of them is a minute of two cores, and the committed figures of the whole are far
from the bounds that are warned about.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import smoke
from smoke import succeeded

Run = Callable[..., subprocess.CompletedProcess[str]]
PACKAGES = {"mpmath": "mpmath", "networkx": "networkx", "optuna": "optuna", "pytorch_lightning": "pytorch-lightning"}


def test_the_data_stages_of_the_default_run_print_no_warning(tmp_path: Path, run: Run) -> None:
    folder = smoke.clone(tmp_path / "clone", experiment="docs_tiny")
    packages = ", ".join(f"{{module: {module}, distribution: {name}}}" for module, name in PACKAGES.items())
    succeeded(
        run(folder, sys.executable, "-m", "bertline", "configure", f"python_docs.packages=[{packages}]", "--save")
    )
    made = succeeded(run(folder, "dvc", "repro", "examples"))
    # Ours; DVC's own begin with a capital.
    assert not re.findall(r"^warning: .*", made.stdout + made.stderr, flags=re.MULTILINE)
    assert "examples: artifacts/examples" in made.stdout
    manifest = json.loads((folder / "artifacts/examples/manifest.json").read_text())
    assert list(manifest["lengths"]) == ["64"]
