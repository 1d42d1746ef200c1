"""Code is a dependency by meaning: comments never re-run a stage, formulas always do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bertline.line.fingerprints import code_fingerprint
from bertline.line.stages import STAGES, stage_named

SOURCE = Path(__file__).resolve().parents[3] / "src"
PRETRAIN = stage_named("pretrain")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the library's source that a test may change."""
    shutil.copytree(SOURCE / "bertline", tmp_path / "bertline", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def changed(source: Path, module: str, old: str, new: str) -> set[str]:
    """The stages whose fingerprint changes when `old` becomes `new` in a module."""
    before = {stage.name: code_fingerprint(stage, source=source) for stage in STAGES}
    path = source.joinpath(*module.split(".")).with_suffix(".py")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return {stage.name for stage in STAGES if code_fingerprint(stage, source=source) != before[stage.name]}


def test_a_comment_or_a_docstring_changes_no_fingerprint(source: Path) -> None:
    assert changed(source, "bertline.modeling.attention", "from __future__", "# a remark\nfrom __future__") == set()
    assert changed(source, "bertline.modeling.attention", '"""', '"""Other words. ') == set()


def test_an_attribute_docstring_changes_no_fingerprint(source: Path) -> None:
    assert changed(source, "bertline.pretraining.config", '"""Optimizer steps."""', '"""Steps."""') == set()


def test_a_changed_seed_formula_changes_every_stage_that_draws_by_it(source: Path) -> None:
    assert {"corpus", "examples", "pretrain", "sweep"} <= changed(
        source, "bertline.foundation.seeds", "digest_size=8", "digest_size=9"
    )


def test_a_changed_model_changes_pretrain_and_what_follows_but_no_data_stage(source: Path) -> None:
    stages = changed(source, "bertline.modeling.bert", "class ", "UNUSED = 1\n\n\nclass ")
    assert {"pretrain", "sweep"} <= stages
    assert not stages & {"corpus", "tokenizer", "examples", "task_data"}


def test_a_changed_sweep_leaves_pretrain_alone(source: Path) -> None:
    stages = changed(source, "bertline.sweep.run", "from __future__", "UNUSED = 1\nfrom __future__")
    assert "sweep" in stages
    assert "pretrain" not in stages


def test_a_new_reference_curve_changes_the_report_alone(source: Path) -> None:
    before = {stage.name: code_fingerprint(stage, source=source) for stage in STAGES}
    (path,) = (source / "bertline/evaluation/reference_curves").glob("docs_tiny.json")
    path.write_text(path.read_text().replace("docs_tiny", "other"))
    assert [stage.name for stage in STAGES if code_fingerprint(stage, source=source) != before[stage.name]] == [
        "evaluate"
    ]


def test_wording_of_errors_and_progress_changes_nothing(source: Path) -> None:
    assert changed(source, "bertline.foundation.progress", "warning: ", "beware: ") == set()


def test_tracking_and_line_are_in_no_fingerprint() -> None:
    for stage in STAGES:
        assert not [name for name in code_fingerprint(stage) if name.startswith(("bertline.tracking", "bertline.line"))]


def test_imports_inside_functions_are_reached(tmp_path: Path) -> None:
    package = tmp_path / "bertline" / "pretraining"
    package.mkdir(parents=True)
    (package / "run.py").write_text("def f():\n    from bertline.modeling import late\n")
    (tmp_path / "bertline" / "modeling").mkdir()
    (tmp_path / "bertline" / "modeling" / "late.py").write_text("x = 1\n")
    assert set(code_fingerprint(PRETRAIN, source=tmp_path)) == {"bertline.pretraining.run", "bertline.modeling.late"}
