"""The documentation builds without warnings, and every generated table has its place."""

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
