"""Code is a dependency by meaning: comments never re-run a stage, formulas always do."""

from __future__ import annotations

import ast
import shutil
from itertools import combinations
from pathlib import Path

import pytest

from bertline.run.fingerprints import code_fingerprint, syntax_digest
from bertline.stages.registry import STAGES, stage_named

SOURCE = Path(__file__).resolve().parents[3] / "src"
PRETRAIN = stage_named("pretrain")
TRIED_KINDS = ("classification", "regression", "retrieval", "summarisation")
"""The last one inherits from a kind that uses functions of the first one's module."""


@pytest.fixture(scope="session")
def parsed() -> None:
    """All modules have been parsed once: what was parsed is remembered by its text."""
    fingerprints(SOURCE)


@pytest.fixture
def source(tmp_path: Path, parsed: None) -> Path:
    """A copy of the library's source that a test may change."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCE / "bertline", tmp_path / "src/bertline", ignore=ignored)
    return tmp_path / "src"


def fingerprints(source: Path) -> dict[str, dict[str, str]]:
    """The fingerprint of each stage; of a stage of one task, those of each kind: sweep@regression."""
    return {
        stage.full_name(kind): code_fingerprint(stage, kind, source=source)
        for stage in STAGES
        for kind in (TRIED_KINDS if stage.per_task else (None,))
    }


def changed(source: Path, module: str, old: str, new: str) -> set[str]:
    """The stages whose fingerprint changes when `old` becomes `new` in a module."""
    before = fingerprints(source)
    path = source.joinpath(*module.split(".")).with_suffix(".py")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return {name for name, found in fingerprints(source).items() if found != before[name]}


def each(stage: str) -> set[str]:
    return {f"{stage}@{kind}" for kind in TRIED_KINDS}


REPORTED = {"sweep@regression", "evaluate", "export"}
CHANGES = [
    # Comments, words and the command line.
    ("modeling.attention", "import math", "# a remark\nimport math", set()),
    ("modeling.attention", '"""', '"""Other words. ', set()),
    ("foundation.progress", "warning: ", "beware: ", set()),
    ("cli.composition", "resolve=True", "resolve=False", set()),  # what it composes is a dependency of its own
    # What turns configuration into work.
    ("pretraining.job", "optimizer=config.optimizer", "optimizer=None", {"pretrain"}),
    ("sweep.bench", "job.sweep.fine_tuning", "job.sweep.fine_tuning_", each("sweep")),
    ("stages.pipeline", '"commit": commit', '"commit": ""', {"export", "evaluate"}),
    ("stages.pretrain", "return run(work)", "return {}", {"pretrain"}),
    # What people see of a stage.
    ("stages.pretrain", "{loss:.2f}", "{loss:.3f}", set()),
    ("stages.sweep", "is_long = True", "is_long = False", set()),
    ("stages.export", 'result["arms"]["encoder"]', 'result["arms"]["reference"]', set()),
    # A kind of task, part by part.
    ("kinds.regression", "F.mse_loss(outputs, batch", "2 * F.mse_loss(outputs, batch", REPORTED),
    ("kinds.regression", "return low + span * shares", "return low - span * shares", REPORTED),
    (
        "kinds.regression",
        "for row in rows], dtype=np.float64)",
        "for row in rows], dtype=np.float32)",
        {"task_data@regression"},
    ),
    ("kinds.regression", '"mean of train"', '"the mean of train"', {"sweep@regression"}),  # a baseline
    ("kinds.regression", "taken for", "answered", {"evaluate"}),
    ("kinds.regression", "Gives a text, or", "Says of a text, or", {"export"}),
    ("kinds.regression", "low must be below", "low has to be below", {"task_data@regression", *REPORTED}),
    # What a method imports, where the method is used.
    ("kinds.usage", "def code_span", "UNUSED = 1\n\n\ndef code_span", {"export"}),
    (
        "encoding.sequences",
        "SCORING_BATCH_SIZE = 64",
        "SCORING_BATCH_SIZE = 65",
        {*each("sweep"), "evaluate", "export"},
    ),
    # What the pretraining does not know: a score, a reader of tables, a baseline.
    (
        *("tasks.metrics.classification", "def ", "UNUSED = 1\n\n\ndef "),
        {*each("sweep"), "task_data@classification", "task_data@summarisation", "evaluate", "export"},
    ),
    ("tasks.table_source", "def ", "UNUSED = 1\n\n\ndef ", each("task_data")),
    ("kinds.classification", '"most frequent labels" if', '"labels" if', {"sweep@classification"}),
    ("kinds.retrieval", "import TextVectors, rankings", "import rankings", {"sweep@retrieval"}),
]


@pytest.mark.parametrize(("module", "old", "new", "stages"), CHANGES)
def test_a_change_of_code_changes_the_stages_that_use_it_alone(
    source: Path, module: str, old: str, new: str, stages: set[str]
) -> None:
    assert changed(source, f"bertline.{module}", old, new) == stages


def test_what_opens_and_records_stages_is_in_no_fingerprint() -> None:
    for stage in STAGES:
        assert not [name for name in code_fingerprint(stage) if name.startswith(("bertline.tracking", "bertline.run"))]


def digest(text: str) -> str:
    return syntax_digest(ast.parse(text))


def test_constants_that_compare_or_look_alike_have_digests_of_their_own() -> None:
    values = ("None", '""', "[]", "()", "{}", "0", "False", "0.0", "0j", 'b""', '"None"', "...", "1", "True", "1.0")
    for template in ("x = {}", "f({})", "f(a={})", "def f(a={}): return a", "x[{}:1]"):
        digests = [digest(template.format(value)) for value in values]
        same = [(a, b) for (a, one), (b, other) in combinations(zip(values, digests, strict=True), 2) if one == other]
        assert not same
    assert digest("def f(): return None") != digest('def f(): return ""') != digest("def f(): return")


def test_imports_inside_functions_are_reached_and_of_a_stage_those_of_build_alone(tmp_path: Path) -> None:
    stage = """
from bertline.stages.base import Stage
from bertline.modeling import shown, named
class Pretrain(Stage):
    name = "pretrain"
    def build(self, work):
        from bertline.pretraining.run import run
        return helped(run(work))
    def show(self, work):
        from bertline.modeling import page
        return shown.of(work)
def helped(found):
    return named.of(found)
def other():
    return shown
"""
    for name, text in {
        "bertline/stages/pretrain.py": stage,
        "bertline/pretraining/run.py": "def run():\n    from bertline.modeling import late\n",
        **{f"bertline/modeling/{name}.py": "x = 1\n" for name in ("late", "shown", "named", "page")},
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    used = {"stages.pretrain", "pretraining.run", "modeling.late", "modeling.shown", "modeling.named"}
    # One statement imports `shown` and `named`: it counts as a whole.
    assert set(code_fingerprint(PRETRAIN, source=tmp_path)) == {f"bertline.{name}" for name in used}
