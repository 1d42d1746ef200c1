"""A stage depends on the packages that it reads or computes with, on the data that it reads, and on no others."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertline.cli.configure import check_data
from bertline.config import SECTIONS, pipeline_config
from bertline.corpus.reader import CorpusReader, CorpusSettings
from bertline.corpus.registry import reader_with
from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.foundation.files import write_json
from bertline.run import identity
from bertline.run.fingerprints import code_fingerprint
from bertline.run.identity import IDENTITY, WATCHED, identity_of_stage
from bertline.run.stage import open_stage, tracked_sections, watched_of
from bertline.stages.base import Stage
from bertline.stages.registry import STAGES, stages_of

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
    "pydantic": "checks types",
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
# (`datasets`, a search), devices know Lightning, and tokenizers nanotoken, with which examples alone are encoded.
_ELSEWHERE = {
    "corpus": {"numpy", "pandas"},
    "tokenizer": {"datasets", "nanotoken", "numpy", "pandas"},  # pandas adds up the figures of a page
    # Methods that make no rows import three; pandas reads sheets of Excel alone.
    "task_data": {"faiss-cpu", "nanotoken", "pandas", "scipy", "torch"},
    "examples": {"datasets"},  # shows examples to people
    "pretrain": {"datasets", "nanotoken"},
    "sweep": {"datasets", "nanotoken", "pandas"},
    "export": {*_SEARCH, "datasets", "nanotoken", "pytorch-lightning"},
    "evaluate": {*_SEARCH, "datasets", "nanotoken", "pytorch-lightning"},
}


@pytest.fixture
def upgraded(monkeypatch: pytest.MonkeyPatch) -> Upgraded:
    """`upgraded("sympy")`: what would be so after an upgrade."""

    def upgrade(distribution: str) -> None:
        real = importlib.metadata.version
        monkeypatch.setattr(
            identity.metadata, "version", lambda name: "99.1+cpu" if name == distribution else real(name)
        )
        identity._installed.cache_clear()

    return upgrade


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    yield
    identity._installed.cache_clear()


DOCS = {f"docs_{name}" for name in ("library", "match", "parameters", "search")}
DATA = {"corpus", *(f"task_data@{name}" for name in DOCS)}
SWEEPS = {f"sweep@{name}" for name in DOCS}


ALL = {"tokenizer", "examples", "pretrain", "evaluate", "export"} | DATA | SWEEPS


def identities(mapping: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What DVC compares for each stage besides artifacts, but for the code: settings, versions and data."""
    config = pipeline_config({key: mapping[key] for key in SECTIONS})
    return {
        stage.full_name(task): {
            "settings": tracked_sections(stage, task, config),
            **identity_of_stage({**watched_of(stage, task, config), "code": {}}, Path("runs")),
        }
        for stage, task in stages_of(config)
    }


def other(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """The stages that run again."""
    return {name for name in before if before[name] != after[name]}


@pytest.mark.parametrize(
    ("distribution", "overrides", "expected"),
    [
        ("sympy", (), DATA),
        ("sympy", ("corpus=text", "corpus.path=texts"), DATA - {"corpus"}),
        ("torch", (), SWEEPS | {"pretrain", "evaluate", "export"}),
        ("optuna", (), SWEEPS),
        ("tokenizers", (), SWEEPS | {"tokenizer", "examples", "pretrain", "evaluate", "export"}),
        ("faiss-cpu", (), {"sweep@docs_search"}),
        ("bm25s", (), {"sweep@docs_search"}),
        ("pytest", (), set()),
    ],
)
def test_an_upgrade_runs_the_stages_again_that_read_or_compute_with_it(
    composed: Composed, upgraded: Upgraded, distribution: str, overrides: tuple[str, ...], expected: set[str]
) -> None:
    write_json(Path("texts/a.txt"), "Some text.")
    identity._installed.cache_clear()
    before = identities(composed(*overrides))
    upgraded(distribution)
    packages_of_docs = DATA if distribution in ("torch", "optuna") else set()
    assert other(before, identities(composed(*overrides))) == expected | packages_of_docs


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("corpus.validation_fraction=0.3", {"corpus"}),
        ("python_docs.split_seed=9", DATA),
        ("tokenizer.vocab_size=999", {"tokenizer"}),
        ("examples.seed=99", {"examples"}),
        ("model.hidden_size=64", {"pretrain"}),
        ("optimizer.lr=0.5", {"pretrain"}),
        ("pretrain.seed=9", {"pretrain"}),
        ("tasks.docs_match.source.min_words=9", {"task_data@docs_match", "sweep@docs_match", "evaluate", "export"}),
        ("sweep.num_seeds=2", SWEEPS),
        ("evaluate.title=mine", {"evaluate"}),
        ("export.model_name=mine", {"export"}),
        ("runtime.num_threads=7", set()),
        ("tracking.log_text=false", set()),
    ],
)
def test_a_setting_runs_the_stages_again_that_list_its_section(
    composed: Composed, setting: str, expected: set[str]
) -> None:
    assert other(identities(composed()), identities(composed(setting))) == expected


PROBE = "pretrain.head_probe={treebank: '{}', every_steps: 5, max_sentences: 9}"
MIX = ("corpus=wikipedia_books", "corpus.sources.books.path=own")


@pytest.mark.parametrize(
    ("overrides", "read", "expected"),
    [
        (("corpus=text", "corpus.path='{}'"), "a", {"corpus"}),
        (("corpus=csv", "corpus.path='{}'"), "a", {"corpus"}),
        (("corpus=text", "corpus.path='{}/*.txt'"), "a.txt", {"corpus"}),
        ((*MIX, "corpus.sources.wikipedia.path='{}'"), "a", {"corpus"}),
        (("corpus.decontaminate=['{}']",), "a", {"corpus"}),
        (("tokenizer=existing", "tokenizer.path='{}'", "pretrain.start_from=some/model"), "vocab.txt", {"tokenizer"}),
        (("tokenizer.user_words='{}/words.txt'",), "words.txt", {"tokenizer"}),
        (("tokenizer.compare=['{}',google-bert/bert-base-uncased]",), "vocab.txt", {"tokenizer"}),
        (("tokenizer=existing", "tokenizer.path='{}'", "pretrain.start_from='{}'"), "a", {"tokenizer", "pretrain"}),
        ((PROBE,), "dev.conllu", {"pretrain"}),
        (("tasks.docs_match.start_from='{}'",), "weights", {"sweep@docs_match"}),
        (("tasks.docs_match.start_from=some/model",), "weights", set()),
        (("tasks.docs_match.unlabelled='{}'", "tasks.docs_match.teacher=own"), "a", {"task_data@docs_match"}),
        (("sweep.encoders=['{}',google-bert/bert-base-uncased]",), "weights", SWEEPS),
    ],
)
def test_a_file_of_the_user_runs_the_stages_again_that_read_it(
    composed: Composed, tmp_path: Path, overrides: tuple[str, ...], read: str, expected: set[str]
) -> None:
    write_json(Path("own/a.txt"), "Own text.")
    data = tmp_path / ("texts" if "*" in overrides[-1] else "data of [mine]")  # no glob: there is such a folder
    for name in {"a.txt", read}:
        write_json(data / name, "before")
    named = data / read if overrides[0] is PROBE else data
    mapping = composed(*(override.replace("{}", str(named)) for override in overrides))
    before = identities(mapping)
    write_json(data / read, "another text")
    assert other(before, identities(mapping)) == expected


def test_build_tags_are_no_part_of_a_version(composed: Composed, upgraded: Upgraded) -> None:
    upgraded("torch")
    assert identities(composed())["pretrain"]["versions"]["torch"] == "99.1"


def test_the_fingerprint_of_a_run_has_what_dvc_compares_and_under_dvc_another_is_refused(
    composed: Composed, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapping = {**composed("tracking.enabled=false", "runtime.runs_folder=runs"), "task_name": "docs_match"}
    with open_stage("task_data", mapping) as stage:
        frozen = yaml.safe_load((stage.folder / "config.yaml").read_text())
    expected = identities(mapping)["task_data@docs_match"]
    assert frozen["made_of"]["versions"] == expected["versions"]
    now = {**expected, "code": frozen["made_of"]["code"]}
    del now["settings"]
    monkeypatch.setenv("DVC_STAGE", "task_data@docs_match")
    for written, refused in ((now, False), ({**now, "code": {**now["code"], "bertline.tasks.build": "edited"}}, True)):
        write_json(IDENTITY / "task_data@docs_match.json", written)
        if not refused:
            with open_stage("task_data", mapping):
                continue
        with (
            pytest.raises(ArtifactError, match=r"identity/task_data@docs_match\.json.*code\.bertline\.tasks\.build"),
            open_stage("task_data", mapping),
        ):
            pass


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


def test_dvc_gets_the_identities_without_loading_what_takes_long(composed: Composed) -> None:
    mapping = composed("runtime.runs_folder=runs")
    Path("params.yaml").write_text(yaml.safe_dump(mapping))
    config = pipeline_config({key: mapping[key] for key in SECTIONS})
    write_json(WATCHED, {stage.full_name(task): watched_of(stage, task, config) for stage, task in stages_of(config)})
    run = (
        "import runpy, sys; "
        "runpy.run_path(sys.argv[1])['main'](); "
        "print([m for m in ('torch', 'hydra', 'numpy', 'mlflow', 'pydantic', 'pyarrow') if m in sys.modules])"
    )
    script = str(ROOT / "pipelines" / "identity.py")
    done = subprocess.run([sys.executable, "-c", run, script], text=True, capture_output=True, check=True)
    assert done.stdout.strip() == "[]"
    assert {path.stem for path in IDENTITY.iterdir()} == ALL


def test_data_that_is_missing_or_cannot_be_watched_is_named_by_its_key(composed: Composed, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/inner").symlink_to(tmp_path / "empty")
    probe = PROBE.replace("{}", str(tmp_path / "dev.conllu"))
    for overrides, message in (
        (("corpus=text", "corpus.path=/no/such"), r"corpus\.path: /no/such does not exist.*corpus\.path=/path/to/it"),
        (("corpus=text", f"corpus.path={tmp_path / 'empty'}"), r"corpus\.path: .*empty is an empty folder"),
        (("corpus=text", f"corpus.path={tmp_path / 'linked'}"), r"linked/inner is a link to a folder"),
        (("corpus=text", f"corpus.path={tmp_path}"), r"corpus\.path is .*holds bertline itself"),
        (("sweep.encoders=[/no/such]",), r"sweep\.encoders\.0: /no/such does not exist"),
        (("corpus.decontaminate=[nothing]",), r"corpus\.decontaminate\.0: nothing does not exist"),
        (
            ("+task@tasks.mine=hub", f"tasks.mine.source.name={tmp_path / 'empty'}", "tasks.mine.source.revision=null"),
            r"tasks\.mine\.source\.name: .*empty is an empty folder",
        ),
        ((probe,), r"pretrain\.head_probe\.treebank: .*dev\.conllu does not exist"),
    ):
        mapping = composed(*overrides)
        with pytest.raises(ConfigError, match=message):
            check_data(pipeline_config({key: mapping[key] for key in SECTIONS}))


def test_a_corpus_reader_that_does_not_name_the_users_data_is_refused() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Forgetful(CorpusReader):
        path: str

    with pytest.raises(TypeError, match="Forgetful has no field of the type UserPath"):
        reader_with(Forgetful, CorpusSettings, "CorpusConfig")
