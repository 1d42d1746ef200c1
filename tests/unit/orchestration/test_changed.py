"""A stage under DVC records nothing where configuration, code or inputs changed while it ran."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import write_json
from bertline.orchestration.changed import files_now_in, mark_of
from bertline.orchestration.fingerprints import code_fingerprint
from bertline.orchestration.stage_run import open_stage
from bertline.orchestration.stages import CODE, METRICS, stage_named
from bertline.orchestration.status import open_folders

Composed = Callable[..., dict[str, Any]]
RESULT = Path("artifacts/tokenizer")


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, composed: Composed) -> Iterator[Path]:
    """A working folder with an input, a params.yaml and the code as `configure` wrote it down."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_STAGE", "tokenizer")
    Path("artifacts/corpus").mkdir(parents=True)
    Path("artifacts/corpus/text").write_text("one")
    write_params(configuration(composed))
    write_json(CODE / "tokenizer", code_fingerprint(stage_named("tokenizer")))
    return tmp_path


def configuration(composed: Composed, *overrides: str) -> dict[str, Any]:
    return composed("experiment=smoke", "tracking.enabled=false", *overrides)


def write_params(content: dict[str, Any]) -> None:
    Path("params.yaml").write_text(yaml.safe_dump(content))


def run(composed: Composed, meanwhile: Callable[[], None]) -> None:
    """The tokenizer's stage, with something that happens while it runs."""
    with open_stage("tokenizer", configuration(composed)) as stage:
        stage.output.mkdir(parents=True)
        (stage.output / "vocab.txt").write_text("a")
        meanwhile()
        stage.finish({"size": 1.0})


def test_a_stage_that_nothing_changes_is_recorded(composed: Composed) -> None:
    run(composed, lambda: write_params(configuration(composed, "pretrain.seed=8", "runtime.num_threads=1")))
    assert (METRICS / "tokenizer.json").exists()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("params", r"tokenizer\.vocab_size \(was \d+, is 777\)"),
        ("code", r"bertline\.tokenization\.build"),
        ("input", r"artifacts/corpus"),
        ("no params", r"params.yaml is missing"),
    ],
)
def test_a_change_while_a_stage_runs_is_refused_and_the_work_kept(composed: Composed, change: str, named: str) -> None:
    code = code_fingerprint(stage_named("tokenizer"))
    meanwhile = {
        "params": lambda: write_params(configuration(composed, "tokenizer.vocab_size=777")),
        "code": lambda: write_json(CODE / "tokenizer", {**code, "bertline.tokenization.build": "0"}),
        "input": lambda: Path("artifacts/corpus/text").write_text("two"),
        "no params": lambda: Path("params.yaml").unlink(),
    }[change]
    with pytest.raises(ArtifactError, match=named):
        run(composed, meanwhile)
    assert not (METRICS / "tokenizer.json").exists()
    (kept,) = Path("runs/tokenizer").glob("*/result/vocab.txt")
    assert kept.read_text() == "a"


def test_code_that_changed_after_configure_stops_a_stage_at_its_start(composed: Composed) -> None:
    write_json(CODE / "tokenizer", {**code_fingerprint(stage_named("tokenizer")), "pipelines/tokenizer.py": "0"})
    with pytest.raises(ArtifactError, match=r"pipelines/tokenizer\.py.*Run `dvc repro` again"):
        run(composed, lambda: None)
    assert not RESULT.exists()


def test_by_hand_the_frozen_configuration_is_the_record(composed: Composed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DVC_STAGE")
    run(composed, lambda: write_params(configuration(composed, "tokenizer.vocab_size=777")))
    assert list(Path("runs/tokenizer").glob("*/metrics.json"))


def test_a_stage_that_is_open_is_seen_until_it_ends(composed: Composed) -> None:
    seen: list[Path] = []
    run(composed, lambda: seen.extend(open_folders(Path("runs"))))
    assert [folder.parent.name for folder in seen] == ["tokenizer"]
    assert open_folders(Path("runs")) == []


def test_a_folder_that_goes_while_an_input_is_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while DVC removes the output of the stage before, or another machine renames a folder into place."""
    inputs = tmp_path / "inputs"
    for name in ("kept", "going"):
        (inputs / name).mkdir(parents=True)
        (inputs / name / "file").write_text(name)
    before, scan = mark_of(inputs)[0], os.scandir

    def gone_before_it_is_listed(path: str | int) -> Any:
        if not isinstance(path, int) and Path(path).name == "going":
            shutil.rmtree(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", gone_before_it_is_listed)
    assert mark_of(inputs)[0] != before
    assert list(files_now_in(inputs)) == [inputs / "kept/file"]
