"""Parts of other packages: found by their entry points, versions of the stages that use them, errors that name them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bertline.foundation import plugins
from bertline.foundation.errors import ConfigError
from bertline.foundation.plugins import packages_in, with_plugins
from bertline.run.identity import packages_of
from bertline.stages.registry import stage_named

GRADES = """
from dataclasses import dataclass
from typing import Literal

from bertline.kinds.classification import Classification, ClassificationTaskConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class GradesTaskConfig(ClassificationTaskConfig):
    kind: Literal["grades"]


class Grades(Classification):
    config_class = GradesTaskConfig
"""


NOTES = """
from dataclasses import dataclass
from typing import Literal
from bertline.corpus.readers.text import TextReader

@dataclass(frozen=True, kw_only=True, slots=True)
class NotesReader(TextReader):
    kind: Literal["notes"]
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Install a package of one module, as pip leaves it."""

    def make(entry: str, group: str = "bertline.kinds", version: str = "1.2") -> None:
        (tmp_path / "school_grades.py").write_text(GRADES)
        info = tmp_path / f"school_grades-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: school-grades\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
        monkeypatch.syspath_prepend(tmp_path)
        plugins._entries.cache_clear()

    yield make
    plugins._entries.cache_clear()


OF_KINDS = """
from typing import get_args
from bertline.kinds.registry import KINDS, TaskConfig
print(KINDS["grades"].__name__, get_args(TaskConfig)[-1].__name__)
"""
OF_READERS = """
from typing import get_args
from bertline.corpus.registry import CorpusConfig, SourceConfig
print(*(get_args(union)[at].__name__ for union, at in ((CorpusConfig, -2), (SourceConfig, -1))))
"""


@pytest.mark.parametrize(
    ("module", "entry", "group", "code", "names"),
    [
        (GRADES, "grades = school_grades:Grades", "kinds", OF_KINDS, "Grades GradesTaskConfig"),
        (NOTES, "notes = school_grades:NotesReader", "readers", OF_READERS, "NotesCorpusConfig NotesSource"),
    ],
    ids=["kind", "reader"],
)
def test_a_kind_or_reader_of_another_package_is_one_of_bertline_s(
    install, tmp_path: Path, module: str, entry: str, group: str, code: str, names: str
) -> None:
    install(entry, f"bertline.{group}")
    (tmp_path / "school_grades.py").write_text(module)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == names


def test_its_version_is_one_of_the_stages_that_use_it_alone(install) -> None:
    install("grades = school_grades:Grades")
    config = {"tasks": {"one": {"kind": "grades"}, "other": {"kind": "regression"}}, "corpus": {"kind": "text"}}
    uses = [("task_data", "one"), ("sweep", "one"), ("evaluate", None), ("export", None)]
    for stage, task in uses:
        assert "school-grades" in packages_of(stage_named(stage), task, config)
    for stage, task in (("task_data", "other"), ("sweep", "other"), ("corpus", None), ("pretrain", None)):
        assert "school-grades" not in packages_of(stage_named(stage), task, config)


@pytest.mark.parametrize(
    ("group", "section"),
    [("bertline.readers", {"sources": {"mine": {"kind": "grades"}}}), ("bertline.objectives", {"kind": "grades"})],
)
def test_readers_and_objectives_are_found_at_any_depth(install, group: str, section: dict) -> None:
    install("grades = school_grades:Grades", group)
    assert packages_in(section) == {"school-grades"}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            "grades = school_grades:Marks",
            "grades = school_grades:Marks .* of the package school-grades cannot be loaded",
        ),
        ("grades = no_such_module:Grades", "cannot be loaded: No module named"),
        ("regression = school_grades:Grades", "has the name of another part"),
    ],
)
def test_a_part_that_cannot_be_used_is_an_error_that_names_the_package(install, entry: str, said: str) -> None:
    install(entry)
    with pytest.raises(ConfigError, match=said):
        with_plugins("bertline.kinds", {"regression": object})
