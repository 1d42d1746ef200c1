"""Sphinx's configuration: `make docs` builds the pages into docs/_build."""

from __future__ import annotations

from typing import Any

import bertline

project = "bertline"
author = "bertline"
project_copyright = "the authors of bertline, Apache-2.0"
version = release = bertline.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}

html_theme = "furo"
pygments_dark_style = "github-dark"  # the default underlines every import like a link
html_title = "bertline"
html_static_path = ["static"]
html_css_files = ["bertline.css"]
html_show_sphinx = False
html_copy_source = False

myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
# `$ command` with its output; `text` is a picture made of characters.
highlight_language = "text"

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True


def markdown_tables(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn Markdown tables of docstrings into those of reStructuredText."""
    written: list[str] = []
    for line in lines:
        if not line.startswith("|"):
            written.append(line)
        elif set(line) <= set("|-: "):
            continue
        else:
            if not (written and written[-1].startswith("     ")):
                written += [".. list-table::", "   :header-rows: 1", ""]
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            written += [f"   {'* ' if column == 0 else '  '}- {cell}" for column, cell in enumerate(cells)]
    lines[:] = written


def setup(app: Any) -> None:
    """Register it."""
    app.connect("autodoc-process-docstring", markdown_tables)
