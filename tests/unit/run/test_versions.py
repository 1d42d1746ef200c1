"""Versions are dependencies: of the stages that read or compute with a package, and of no others."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertline.config import pipeline_config
from bertline.foundation.errors import DataError
from bertline.foundation.manifests import write_manifest
from bertline.run import fingerprints
from bertline.run import stage as stage_run
from bertline.run.fingerprints import code_fingerprint, stage_versions, versions_by_stage
from bertline.stages.base import Stage
from bertline.stages.registry import STAGES, stage_named
from bertline.stages.task_data import check_packages_of_corpus

ROOT = Path(__file__).resolve().parents[3]
Composed = Callable[..., dict[str, Any]]
Upgraded = Callable[[str], None]

# Import names that differ from the distribution's name.
_DISTRIBUTIONS = {
    "sklearn": "scikit-learn", "pytorch_lightning": "pytorch-lightning", "lightning_fabric": "pytorch-lightning",
    "faiss": "faiss-cpu", "backports": "backports.zstd",
}  # fmt: skip
# Used by stages whose result does not depend on their version.
_WITHOUT_MEANING = {
    "huggingface_hub": "fetches a pinned revision",
    "fsspec": "opens files",
    "backports.zstd": "gives the text that was compressed, or an error",
    "jinja2": "fills templates",
    "markupsafe": "escapes text",
    "pyarrow": "where it only reads, or keeps predictions",
    "psutil": "tells whether a process lives",
    "ray": "decides where work is done",
    "regex": "cuts words of users' texts, none of rows",
    "rich": "shows progress",
    "safetensors": "keeps bytes",
    "sqlalchemy": "keeps the study",
    "threadpoolctl": "limits threads",
    "yaml": "reads configuration",
}
_SEARCH = {"bm25s", "faiss-cpu", "scikit-learn"}  # a served model has its search; export computes nothing with it
# Modules that a stage imports for one thing hold others: rows are read by the part of a kind that also builds them
# (`datasets`, a search), a task of docstrings knows the readers of a corpus (chardet), devices know Lightning, and
# tokenizers nanotoken, with which examples alone are encoded.
_ELSEWHERE = {
    "corpus": {"numpy"},
    "tokenizer": {"datasets", "nanotoken", "numpy"},
    # Methods that make no rows import three; pandas reads sheets of Excel alone.
    "task_data": {"chardet", "faiss-cpu", "nanotoken", "pandas", "scipy", "torch"},
    "examples": {"datasets"},  # shows examples to people
    "pretrain": {"datasets", "nanotoken"},
    "sweep": {"datasets", "nanotoken", "pandas"},
    "export": {*_SEARCH, "datasets", "nanotoken", "pytorch-lightning"},
    "evaluate": {*_SEARCH, "datasets", "chardet", "nanotoken", "pytorch-lightning"},
}


@pytest.fixture
def upgraded(monkeypatch: pytest.MonkeyPatch) -> Upgraded:
    """`upgraded("sympy")`: what would be so after an upgrade."""

    def upgrade(distribution: str) -> None:
        real = importlib.metadata.version
        monkeypatch.setattr(
            fingerprints.metadata, "version", lambda name: "99.1+cpu" if name == distribution else real(name)
        )
        fingerprints._installed.cache_clear()

    return upgrade


@pytest.fixture(autouse=True)
def forget_versions() -> Any:
    yield
    fingerprints._installed.cache_clear()


DOCS = {f"docs_{name}" for name in ("library", "match", "parameters", "search")}
DATA = {"corpus", *(f"task_data@{name}" for name in DOCS)}
SWEEPS = {f"sweep@{name}" for name in DOCS}


@pytest.mark.parametrize(
    ("distribution", "overrides", "expected"),
    [
        ("sympy", (), DATA),
        ("sympy", ("corpus=text", "corpus.path=data/text"), DATA - {"corpus"}),
        ("torch", (), DATA | SWEEPS | {"pretrain", "evaluate", "export"}),
        ("optuna", (), DATA | SWEEPS),
        ("tokenizers", (), SWEEPS | {"tokenizer", "examples", "pretrain", "evaluate", "export"}),
        ("faiss-cpu", (), {"sweep@docs_search"}),
        ("bm25s", (), {"sweep@docs_search"}),
        ("pytest", (), set()),
    ],
)
def test_an_upgrade_concerns_the_stages_that_read_or_compute_with_it(
    composed: Composed, upgraded: Upgraded, distribution: str, overrides: tuple[str, ...], expected: set[str]
) -> None:
    fingerprints._installed.cache_clear()
    mapping = composed(*overrides)
    before = versions_by_stage(mapping)
    upgraded(distribution)
    after = versions_by_stage(mapping)
    assert {name for name in before if before[name] != after[name]} == expected


def test_build_tags_are_no_part_of_a_version(composed: Composed, upgraded: Upgraded) -> None:
    upgraded("torch")
    assert stage_versions(stage_named("pretrain"), None, composed())["torch"] == "99.1"


def test_the_fingerprint_of_a_run_has_the_same_versions(
    composed: Composed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mapping = composed("tracking.enabled=false")
    with stage_run.open_stage("task_data", {**mapping, "task_name": "docs_match"}) as stage:
        frozen = yaml.safe_load((stage.folder / "config.yaml").read_text())
    assert frozen["made_of"]["versions"] == versions_by_stage(mapping)["task_data@docs_match"]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_a_stage_names_every_package_that_its_code_imports(stage: Stage) -> None:
    under_some_configurations = re.findall(r'"([\w.-]+)"', inspect.getsource(stage.more_packages))
    named = {*stage.packages, *under_some_configurations}
    named |= set(_WITHOUT_MEANING) | _ELSEWHERE.get(stage.name, set())
    assert {_DISTRIBUTIONS.get(name, name) for name in _imported(stage)} <= named


def _imported(stage: Stage) -> set[str]:
    found: set[str] = set()
    for module in code_fingerprint(stage):
        path = ROOT / "src" / f"{module.replace('.', '/')}.py"
        if not module.startswith("bertline.") or not path.exists():
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    return {name for name in found if name != "bertline" and name not in sys.stdlib_module_names}


def test_dvc_gets_the_versions_without_loading_what_takes_long(composed: Composed, tmp_path: Path) -> None:
    script = ROOT / "pipelines" / "versions.py"
    mapping = composed()
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(mapping))
    run = (
        "import runpy, sys; "
        "runpy.run_path(sys.argv[1])['main'](); "
        "print([m for m in ('torch', 'hydra', 'numpy', 'mlflow', 'pydantic', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", run, str(script)], cwd=tmp_path, text=True, capture_output=True, check=True
    )
    assert done.stdout.strip() == "[]"
    written = {path.name: json.loads(path.read_text()) for path in (tmp_path / "artifacts/versions").iterdir()}
    assert written == versions_by_stage(mapping)


def installed(name: str) -> str:
    return importlib.metadata.version(name).split("+")[0]


def corpus_of(**packages: str) -> None:
    write_manifest(Path("artifacts/corpus"), kind="corpus", format_version=1, content={"packages": packages})


@pytest.mark.parametrize("task", sorted(DOCS))
def test_rows_beside_a_corpus_of_other_versions_stop_with_both_versions_and_what_to_do(
    composed: Composed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    monkeypatch.chdir(tmp_path)
    config = pipeline_config(composed())
    check_packages_of_corpus(config, task)  # there is no corpus
    corpus_of(sympy=installed("sympy"), gone="1.0")
    check_packages_of_corpus(config, task)
    corpus_of(sympy="0.1", sklearn="0.2", numpy=installed("numpy"))
    with pytest.raises(DataError) as stopped:
        check_packages_of_corpus(config, task)
    said = str(stopped.value)
    assert f"sympy 0.1 (installed: {installed('sympy')})" in said and "numpy" not in said
    assert f"scikit-learn 0.2 (installed: {installed('scikit-learn')})" in said
    assert "dvc repro corpus" in said and "pip install scikit-learn==0.2 sympy==0.1" in said


def test_sweeps_depend_on_the_files_of_their_encoders(composed: Composed, tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors").write_bytes(b"before")
    mapping = composed(f"sweep.encoders=[{tmp_path},google-bert/bert-base-uncased]")
    before = versions_by_stage(mapping)
    (tmp_path / "weights.safetensors").write_bytes(b"after")
    after = versions_by_stage(mapping)
    assert {name for name in before if before[name] != after[name]} == SWEEPS
