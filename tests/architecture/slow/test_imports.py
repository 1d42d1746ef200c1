"""What may be imported where, checked by importing: a bare GPU image has torch and Lightning, nothing else of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "src" / "bertline"
# A name whose entry is None is "not installed" to `import` and to `find_spec` alike.
BLOCK = "import sys; sys.modules.update(dict.fromkeys({names!r})); import bertline\n"


def modules_of(*packages: str) -> list[str]:
    paths = [path for package in packages for path in sorted((SOURCE / package).rglob("*.py"))]
    return [".".join(["bertline", *path.relative_to(SOURCE).with_suffix("").parts]) for path in paths]


@pytest.mark.parametrize(
    ("packages", "blocked"),
    [
        ((), {"torch", "mlflow", "transformers"}),
        (("modeling", "training", "pretraining"), {"pydantic", "mlflow", "hydra", "omegaconf", "dvc", "optuna"}),
        (("modeling",), {"pytorch_lightning", "mlflow", "pydantic", "transformers"}),
        (("foundation", "corpus", "tokenization", "examples", "tracking", "demo"), {"torch", "pytorch_lightning"}),
    ],
    ids=["bertline", "training", "modeling", "data"],
)
def test_packages_import_without_what_they_must_not_need(packages: tuple[str, ...], blocked: set[str]) -> None:
    names = modules_of(*packages)
    code = BLOCK.format(names=blocked) + "".join(f"import {name.removesuffix('.__init__')}\n" for name in names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
