"""The notebooks: run from top to bottom on a finished pipeline; stored without outputs; no logic of their own.

With `BERTLINE_CHECKPOINT=FOLDER` those that take a public checkpoint are run on that one too.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import render_notebooks  # noqa: E402

NOTEBOOKS = render_notebooks.NOTEBOOKS
ENCODERS = {"pipeline": None, "checkpoint": os.environ.get("BERTLINE_CHECKPOINT")}
TAKES_CHECKPOINT = {path for path in NOTEBOOKS if "BERTLINE_CHECKPOINT" in path.read_text(encoding="utf-8")}
by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@by_name
@pytest.mark.parametrize("encoder", ENCODERS)
def test_it_runs_and_draws_pictures(path: Path, encoder: str, smoke_pipeline: Path, monkeypatch) -> None:
    monkeypatch.setenv("BERTLINE_PIPELINE", str(smoke_pipeline))
    monkeypatch.delenv("BERTLINE_CHECKPOINT", raising=False)
    if encoder == "checkpoint":
        if path not in TAKES_CHECKPOINT or not ENCODERS[encoder]:
            pytest.skip("it reads the pipeline only, or BERTLINE_CHECKPOINT names no folder")
        monkeypatch.setenv("BERTLINE_CHECKPOINT", str(Path(ENCODERS[encoder]).resolve()))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute(cwd=str(path.parent))
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/svg+xml" in output.get("data", {}) for output in outputs) >= 3
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []  # shown on red


@by_name
def test_it_is_stored_without_outputs_defines_no_logic_and_begins_with_what_it_needs(path: Path) -> None:
    first, *cells = nbformat.read(path, as_version=4).cells
    assert first.cell_type == "markdown" and "make repro" in first.source
    for cell in cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
            source = "\n".join(line for line in cell.source.splitlines() if not line.startswith("%"))
            kinds = {type(node) for node in ast.walk(ast.parse(source))}
            assert not kinds & {ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef}


@by_name
def test_its_page_has_every_cell_and_every_picture(path: Path) -> None:
    page, command = render_notebooks.page_of(path), f"run `python docs/render_notebooks.py {path.stem}`"
    name = page.relative_to(ROOT)
    assert page.is_file(), f"{name} is missing: {command}"
    text, place = page.read_text(encoding="utf-8"), 0
    cells = nbformat.read(path, as_version=4).cells
    for cell in cells:
        found = text.find(cell.source, place)
        assert found >= 0, f"{name} lacks this cell: {command}\n{cell.source}"
        place = found + len(cell.source)
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    assert re.findall(r"^~~~python\n(.*?)\n~~~$", text, re.DOTALL | re.MULTILINE) == code, f"{name}: {command}"
    shown = {(page.parent / link).resolve() for link in re.findall(r"!\[[^]]+\]\((\S+\.svg)\)", text)}
    pictures = set(render_notebooks.pictures_of(path).iterdir())
    assert shown == pictures and len(pictures) >= 3, f"{name}: {command}"
    assert max(picture.stat().st_size for picture in pictures) < 1_000_000


def test_no_page_is_left_of_a_notebook_that_is_gone_and_all_are_in_the_contents() -> None:
    expected = {render_notebooks.page_of(path) for path in NOTEBOOKS}
    assert set((ROOT / "docs/notebooks").glob("*")) | {ROOT / "docs/tour.md"} == expected
    contents = (ROOT / "docs/index.md").read_text().split("```{toctree}")
    assert "\ntour\n" in contents[1] and any(":glob:" in part and "\nnotebooks/*\n" in part for part in contents)
