"""The notebooks: run from top to bottom on a finished pipeline; stored without outputs; no logic of their own."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import render_tour  # noqa: E402

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@by_name
def test_it_runs_on_a_finished_line_and_draws_pictures(path, smoke_pipeline, monkeypatch) -> None:
    monkeypatch.setenv("BERTLINE_PIPELINE", str(smoke_pipeline))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute(cwd=str(path.parent))
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/svg+xml" in output.get("data", {}) for output in outputs) >= 5
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


def test_the_page_of_the_tour_has_every_cell_and_every_picture() -> None:
    page = render_tour.PAGE.read_text(encoding="utf-8")
    place = 0
    for cell in nbformat.read(render_tour.NOTEBOOK, as_version=4).cells:
        found = page.find(cell.source, place)
        assert found >= 0, f"docs/tour.md lacks this cell; run `make tour`:\n{cell.source}"
        place = found + len(cell.source)
    shown = re.findall(r"!\[[^]]+\]\((images/tour/\d\d\.svg)\)", page)
    assert len(shown) >= 5
    assert sorted(shown) == sorted(f"images/tour/{path.name}" for path in render_tour.PICTURES.iterdir())
    assert "tour" in (ROOT / "docs/index.md").read_text().split("```{toctree}")[1]
