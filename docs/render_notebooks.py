"""Run notebooks on the finished pipeline and write them as pages of the documentation: `make notebooks`.

`python docs/render_notebooks.py [NAME ...]` takes the names of files in `notebooks/`, without `.ipynb`; none means all.
Notebooks are stored without outputs. Their pages, `docs/notebooks/*.md` (and `docs/tour.md`), and their pictures,
`docs/images/NAME/*.svg`, are stored with them, so that building the documentation needs no pipeline.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
_SVG = "image/svg+xml"
# Seconds, folders of `tempfile` and progress differ from run to run.
_PROGRESS = re.compile(r"^.*(?:: [\d,]+ in [\d.]+ s| s left)$\n?|(?<= on dev) in \d+ s$|/tmp/\w+/", re.MULTILINE)


def main(names: list[str]) -> None:
    """Write the pages of some notebooks, or of all, and their pictures."""
    by_name = {path.stem: path for path in NOTEBOOKS}
    if unknown := set(names) - by_name.keys():
        raise SystemExit(f"no notebook is called {', '.join(sorted(unknown))}; there are {', '.join(by_name)}")
    for name in names or by_name:
        notebook = nbformat.read(by_name[name], as_version=4)
        client = NotebookClient(notebook, timeout=300, kernel_name="python3", coalesce_streams=True)
        client.execute(cwd=str(by_name[name].parent))
        text, pictures = rendered(notebook.cells, by_name[name], preset=_preset())
        folder = pictures_of(by_name[name])
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.svg"):
            old.unlink()
        for file_name, picture in pictures.items():
            (folder / file_name).write_text(picture, encoding="utf-8")
        page = page_of(by_name[name])
        page.parent.mkdir(exist_ok=True)
        page.write_text(text, encoding="utf-8")
        print(f"{page.relative_to(ROOT)}: {len(notebook.cells)} cells, {len(pictures)} pictures")


def page_of(notebook: Path) -> Path:
    """Return the page of a notebook; pages are ordered by their names, as the notebooks are."""
    return DOCS / "tour.md" if notebook.stem == "00-tour" else DOCS / "notebooks" / f"{notebook.stem}.md"


def pictures_of(notebook: Path) -> Path:
    """Return the folder of a notebook's pictures."""
    return DOCS / "images" / re.sub(r"^\d+-", "", notebook.stem)


def rendered(cells: list[Any], notebook: Path, *, preset: str) -> tuple[str, dict[str, str]]:
    """Return the page as Markdown, and the pictures by file name.

    Args:
        cells: Cells of the notebook after it was run.
        notebook: File of the notebook.
        preset: Preset of the pipeline that it was run on.
    """
    pictures: dict[str, str] = {}
    folder = Path(os.path.relpath(pictures_of(notebook), page_of(notebook).parent)).as_posix()
    source, run = f"notebooks/{notebook.name}", "run without a pipeline; `make notebooks` runs it again"
    if any("BERTLINE_PIPELINE" in cell.source for cell in cells):
        run = f"run on the preset `{preset}`; `make notebooks` runs it on yours"
    parts = [
        f"<!-- Made by docs/render_notebooks.py from {source} (preset {preset}); do not edit. -->",
        *(part for cell in cells for part in _of_cell(cell, pictures, folder)),
        f"*This page is `{source}`, {run}.*",
    ]
    return "\n\n".join(parts) + "\n", pictures


def _of_cell(cell: Any, pictures: dict[str, str], folder: str) -> Iterator[str]:
    if cell.cell_type == "markdown":
        yield cell.source
        return
    # Tildes, because tests run what stands between backticks.
    yield f"~~~python\n{cell.source}\n~~~"
    for output in cell.outputs:
        data = output.get("data", {})
        if output.output_type == "stream" and output.name == "stdout":
            if text := _PROGRESS.sub("", output.text).strip("\n"):
                yield f"~~~text\n{text.rstrip()}\n~~~"
        elif _SVG in data:
            name = f"{len(pictures) + 1:02d}.svg"
            pictures[name] = _without_metadata(data[_SVG])
            yield f"![{_title(cell.source)}]({folder}/{name})"
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
    main(sys.argv[1:])
