"""Nothing phones home: telemetry of other libraries is off in every entry point, before they are imported."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import bertline

ROOT = Path(__file__).resolve().parents[2]
ENTRY_POINTS = sorted([*(ROOT / "pipelines").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")])
TURNS_OFF = ("bertline", "repository_source")
REPORTING = (
    "mlflow", "dvc", "datasets", "transformers", "huggingface_hub", "sentence_transformers", "ray", "onnxruntime",
)  # fmt: skip


def imported(path: Path) -> list[str]:
    """Top-level names of all imports, in their order in the file."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name.split(".")[0]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.lineno, str(node.module).split(".")[0]))
    return [name for _, name in sorted(found, key=lambda each: each[0])]


def test_no_entry_point_imports_a_library_that_reports_before_bertline() -> None:
    for path in ENTRY_POINTS:
        names = imported(path)
        reporting = [names.index(name) for name in REPORTING if name in names]
        if reporting:
            assert any(name in names[: min(reporting)] for name in TURNS_OFF), path


def test_kernels_are_compiled_below_the_home_unless_there_is_none(tmp_path: Path) -> None:
    code = "import bertline, os; print(os.environ.get('TORCHINDUCTOR_CACHE_DIR'))"
    kept = {key: value for key, value in os.environ.items() if key not in ("TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME")}
    for home, cache in ((tmp_path, tmp_path / ".cache/bertline/torchinductor"), (tmp_path / "none", None)):
        environment = {**kept, "HOME": str(home), "PYTHONPATH": str(ROOT / "src")}
        assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True).strip() == str(cache)


def shown_after(first: str, **more: str) -> str:
    code = f"{first}\nimport json, os, bertline; print(json.dumps([os.environ.get(x) for x in bertline.NO_TELEMETRY]))"
    kept = {name: value for name, value in os.environ.items() if name not in bertline.NO_TELEMETRY}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "benchmarks")])
    environment = {**kept, "PYTHONPATH": path, **more}
    return subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)


@pytest.mark.parametrize("first", ["import bertline", "import bertline.run.ranks", "import repository_source"])
def test_importing_an_entry_point_turns_telemetry_off_but_keeps_what_a_user_has_set(first: str) -> None:
    assert shown_after(first).strip() == '["1", "1", "1", "true", "1"]'
    assert '"0"' in shown_after(first, HF_HUB_DISABLE_TELEMETRY="0")
