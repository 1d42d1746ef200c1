"""Fingerprints follow imports: an `__init__` that imports would tie every stage to every module."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "bertline"


def test_a_package_init_imports_nothing() -> None:
    for path in SOURCE.glob("*/__init__.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        assert not any(isinstance(node, ast.Import | ast.ImportFrom) for node in nodes), path
