"""Stages share the documentation strings that one of them has read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertline.demo import docstrings
from bertline.run.stage import open_stage


def test_a_stage_finds_the_docstrings_that_an_earlier_one_has_read(
    composed: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content = composed("tracking.enabled=false")
    with open_stage("corpus", content) as stage:
        one = [package for package in stage.config.python_docs.packages if package.module == "mpmath"]
        packages = dataclasses.replace(stage.config.python_docs, packages=one)
        read = list(docstrings.read_modules(packages))
    with open_stage("task_data", {**content, "task_name": "docs_match"}):
        monkeypatch.delattr(docstrings.ast, "parse")  # nothing is parsed any more
        assert read and list(docstrings.read_modules(packages)) == read
