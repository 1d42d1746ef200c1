"""The examples in docstrings, package by package; each package is imported only when its examples run."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
PACKAGES = sorted(path.parent.name for path in (SOURCE / "bertline").glob("*/__init__.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_examples_of_a_package_give_what_they_show(package: str) -> None:
    for path in sorted((SOURCE / "bertline" / package).rglob("*.py")):
        if re.search(r"^\s*>>> ", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            module = importlib.import_module(".".join(path.relative_to(SOURCE).with_suffix("").parts))
            assert doctest.testmod(module).failed == 0, f"{path}: see what is printed"
