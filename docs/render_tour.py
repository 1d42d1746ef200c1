"""Run the tour notebook on the finished pipeline and write it as a page of the documentation: `make tour`.

The notebook is stored without outputs. The page, `docs/tour.md`, and its pictures, `docs/images/tour/*.svg`, are stored
with them, so that building the documentation needs no pipeline.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "00-tour.ipynb"
PAGE = ROOT / "docs" / "tour.md"
PICTURES = ROOT / "docs" / "images" / "tour"
_SVG = "image/svg+xml"


def main() -> None:
    """Write the page and its pictures."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(NOTEBOOK.parent))
    page, pictures = rendered(notebook.cells, preset=_preset())
    PICTURES.mkdir(parents=True, exist_ok=True)
    for old in PICTURES.glob("*.svg"):
        old.unlink()
    for name, picture in pictures.items():
        (PICTURES / name).write_text(picture, encoding="utf-8")
    PAGE.write_text(page, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(notebook.cells)} cells, {len(pictures)} pictures")


def rendered(cells: list[Any], *, preset: str) -> tuple[str, dict[str, str]]:
    """Return the page as Markdown, and the pictures by file name.

    Args:
        cells: Cells of a notebook that was run.
        preset: Preset of the pipeline that it was run on.
    """
    pictures: dict[str, str] = {}
    parts = [
        f"<!-- Made by docs/render_tour.py from notebooks/00-tour.ipynb (preset {preset}); do not edit. -->",
        *(part for cell in cells for part in _of_cell(cell, pictures)),
        f"*This page is `notebooks/00-tour.ipynb`, run on the preset `{preset}`; `make tour` runs it on yours.*",
    ]
    return "\n\n".join(parts) + "\n", pictures


def _of_cell(cell: Any, pictures: dict[str, str]) -> Iterator[str]:
    if cell.cell_type == "markdown":
        yield cell.source
        return
    # Tildes, because tests run what stands between backticks.
    yield f"~~~python\n{cell.source}\n~~~"
    for output in cell.outputs:
        data = output.get("data", {})
        if output.output_type == "stream" and output.name == "stdout":
            yield f"~~~text\n{output.text.rstrip()}\n~~~"
        elif _SVG in data:
            name = f"{len(pictures) + 1:02d}.svg"
            pictures[name] = _without_metadata(data[_SVG])
            yield f"![{_title(cell.source)}](images/tour/{name})"
        elif "text/html" in data:
            yield re.sub(r"<style.*?</style>\n?", "", data["text/html"], flags=re.DOTALL)


def _without_metadata(svg: str) -> str:
    """Drop matplotlib's metadata, which has the date, so that the same run gives the same file."""
    return re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)


def _title(source: str) -> str:
    found = re.search(r'title\("([^"]+)"\)', source)
    return found[1] if found else "Picture"


def _preset() -> str:
    import yaml

    params = Path(os.environ.get("BERTLINE_PIPELINE", ROOT)) / "params.yaml"
    content = yaml.safe_load(params.read_text(encoding="utf-8"))
    return str(content["evaluate"].get("preset", "unknown"))


if __name__ == "__main__":
    main()
