"""The documentation builds without warnings."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))

import reference_tables  # noqa: E402

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages."""
    out = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(DOCS), str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def test_every_generated_table_has_a_place(built: Path) -> None:
    named = [name for page in PAGES for name in re.findall(r"<!-- generated: (\w+) -->", page.read_text())]
    assert sorted(named) == sorted(reference_tables.TABLES)
    assert not any("<!-- generated" in page.read_text() for page in built.rglob("*.html"))


def test_pages_load_nothing_from_the_network(built: Path) -> None:
    loads = re.compile(r"<(?:script|img|link)[^>]+(?:src|href)=\"((?:https?:)?//[^\"]+)")
    assert {url for page in built.rglob("*.html") for url in loads.findall(page.read_text())} == set()


def test_the_picture_of_the_layers_has_every_package_from_top_to_bottom(built: Path) -> None:
    drawn = re.findall(r"<text[^>]+y=\"(\d+)\">(\w+)</text>", (built / "architecture.html").read_text())
    rows = {name: int(y) for y, name in drawn}
    packages = {path.parent.name for path in (ROOT / "src/bertline").glob("*/__init__.py")}
    packages |= {path.stem for path in (ROOT / "src/bertline").glob("[!_]*.py")}
    assert set(rows) == {"pipelines", *packages} - {"demo", "kinds"}  # their parts belong to several layers
    assert rows["pipelines"] < rows["pretraining"] < rows["examples"] == rows["modeling"] < rows["foundation"]
