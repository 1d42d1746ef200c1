"""An unfinished pretraining next to a new one: `open_stage` refuses to repeat it, or reports it."""

from __future__ import annotations

import re
import sqlite3
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

import pretraining_failures as failures
import probing_inputs as language
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import write_json
from bertline.orchestration import stage_run, worker
from bertline.orchestration.ownership import hold_lock
from bertline.orchestration.stage_run import open_stage
from bertline.orchestration.status import Status, read_status, write_status
from bertline.pretraining.job import FREE_KEYS
from bertline.pretraining.mask_predictions import read_mask_predictions
from bertline.pretraining.validation import ValidationProbe
from bertline.training.checkpoints import CheckpointFolder
from tiny import load_pretraining_model
from unfinished_runs import BEGIN, CODE, STEPS, WORK, curve, looks_unfinished, opening, train

Compose = Callable[..., dict[str, Any]]
OTHER_FREE_KEYS = (
    "pretrain.validate_every_steps=7",
    "pretrain.validation_sequences=8",
    "pretrain.checkpoint_every_steps=9",
    "pretrain.keep_checkpoints=1",
    "pretrain.mask_predictions.every_steps=11",
    "pretrain.linear_probe={every_steps: 13, max_sentences: 90}",
    "pretrain.health.max_rewinds=9",
)


@pytest.fixture
def compose(
    composed: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """`compose("key=value", ...)` on made-up examples, in a folder that looks like a repository's."""
    language.write_language(tmp_path / "artifacts", num_train=60, num_validation=60)
    monkeypatch.chdir(tmp_path)
    # The source may be edited while tests run; what a change of it does is tested by `changed_code`.
    monkeypatch.setattr(stage_run, "code_fingerprint", lambda stage: dict(CODE))
    return lambda *overrides: composed(*BEGIN, *overrides)


def renamed(mapping: dict[str, Any], *, naming: Iterable[str] = ()) -> Path:
    """Do what the refusal to repeat an unfinished run says; return the run's new folder."""
    with pytest.raises(ConfigError, match="changes no weights") as refused:
        opening(mapping)
    assert all(words in str(refused.value) for words in naming)
    command = re.search("`(.*)`", str(refused.value))[1]  # type: ignore[index]
    subprocess.run(command, shell=True, check=True)
    return Path(command.split()[-1])


def train_renamed(mapping: dict[str, Any], *, naming: Iterable[str] = (), stop_at: int | None = None) -> Path:
    folder = renamed(mapping, naming=naming)
    assert train(mapping, stop_at=stop_at) == folder
    return folder


def test_the_free_keys_given_here_are_all_there_are() -> None:
    given = {override.partition("=")[0] for override in OTHER_FREE_KEYS}
    assert {key for key in FREE_KEYS if any(each == key or each.startswith(f"{key}.") for each in given)} == {
        *FREE_KEYS
    }


def test_other_keys_that_change_no_weights_end_in_the_weights_of_an_undisturbed_run(
    compose: Compose, tmp_path: Path
) -> None:
    alone = train(compose()).rename(tmp_path / "alone")

    train(compose(), stop_at=30)
    folder = train_renamed(
        compose(*OTHER_FREE_KEYS), naming=[override.partition("=")[0] for override in OTHER_FREE_KEYS]
    )

    expected, found = (load_pretraining_model(each / "result").state_dict() for each in (alone, folder))
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
    assert curve(folder, "train/") == curve(alone, "train/")
    # One curve: each step once, the old interval up to where it was stopped, the new one from there.
    assert [*curve(folder, "val/")] == [0, 10, 20, 30, 35, 42, 49, 56, 60]
    assert [*curve(folder, "probe/")] == [39, 52, 60]
    assert sorted({row["step"] for row in read_mask_predictions(folder / "mask_predictions.jsonl")}) == [
        0,
        20,
        33,
        44,
        55,
        60,
    ]


def test_a_diverged_run_is_resumed_once_it_may_roll_back_more_often(
    compose: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The promise of `FREE_KEYS`, kept by the pipeline; it ends as a run that was allowed to from the start."""
    failures.poison((4 * 24, 4 * 30), patch=monkeypatch.setattr)  # the examples of steps 24 to 29
    allowed = compose("pretrain.health.max_rewinds=1")
    alone = train(allowed).rename(tmp_path / "alone")

    with open_stage("pretrain", compose("pretrain.health.max_rewinds=0")) as stage:
        assert worker.main(stage.folder, WORK) != 0
    assert "max_rewinds=0" in read_status(stage.folder).message
    folder = train_renamed(allowed, naming=["pretrain.health.max_rewinds (0 there, 1 here)"])
    expected, found = (load_pretraining_model(each / "result").state_dict() for each in (alone, folder))
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())
    assert curve(folder, "train/") == curve(alone, "train/")


def test_the_best_step_is_not_sought_across_two_choices_of_held_out_sequences(
    compose: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = ValidationProbe.probe
    early = lambda self, step: {**probe(self, step), "val/mlm_loss": 0.1 + step / 1000}  # noqa: E731
    monkeypatch.setattr(ValidationProbe, "probe", early)
    train(compose(), stop_at=30)
    kept = train_renamed(compose("pretrain.health.max_rewinds=8"), stop_at=40)
    assert CheckpointFolder(kept / "checkpoints", keep=1).load_newest().state["best"]["step"] == 10  # type: ignore[union-attr]
    other = train_renamed(compose("pretrain.validation_sequences=8"))
    assert CheckpointFolder(other / "checkpoints", keep=1).load_newest().state["best"]["step"] == 50  # type: ignore[union-attr]


def test_a_worker_of_its_own_resumes_and_mlflow_shows_one_whole_curve(compose: Compose, tmp_path: Path) -> None:
    """As the recipe does it, worker and all: nothing of this happens in the process of the test."""
    tracked = ("tracking.enabled=true", f"tracking.uri=sqlite:///{tmp_path / 'mlflow.db'}")
    train(compose(), stop_at=30)
    changed = compose("pretrain.health.max_rewinds=9", *tracked)
    renamed(changed)
    with open_stage("pretrain", changed) as stage:
        metrics = stage.work(WORK)
        stage.finish(metrics)
    assert metrics["steps"] == STEPS
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        steps = database.execute("select step from metrics where key = 'val/mlm_loss' order by step").fetchall()
    assert [step for (step,) in steps] == [0, 10, 20, 30, 40, 50, 60]


def test_a_run_whose_inputs_changed_while_it_worked_is_not_resumed(compose: Compose) -> None:
    begun = opening(compose()).folder
    looks_unfinished(begun, 30)
    write_status(begun, Status(state="failed", message="what this run reads changed", inputs_changed=True))
    folder = opening(compose("pretrain.health.max_rewinds=9")).folder
    assert begun.exists() and not (folder / "checkpoints").exists()


def test_a_finished_run_is_left_where_it_is(compose: Compose, capsys: pytest.CaptureFixture[str]) -> None:
    folder = opening(compose()).folder
    looks_unfinished(folder, 60)
    write_json(folder / "status.json", {"state": "finished"})
    other = opening(compose("pretrain.keep_checkpoints=1")).folder
    assert folder.exists() and not (other / "checkpoints").exists()
    assert str(folder) not in capsys.readouterr().out


def test_a_run_at_work_is_not_repeated_either(compose: Compose) -> None:
    folder = opening(compose()).folder
    looks_unfinished(folder, 20)
    changed = compose("pretrain.keep_checkpoints=1")
    with hold_lock(folder), pytest.raises(ConfigError, match=f"{folder} .* at step 20.* stop its worker, rename it"):
        opening(changed)
    new = renamed(changed)
    assert (new / "checkpoints/step-00000020.pt").exists() and not folder.exists()
    assert opening(changed).folder == new


def test_of_several_the_same_training_and_its_most_steps_are_named(compose: Compose) -> None:
    looks_unfinished(opening(compose("optimizer.lr=0.5")).folder, 50)
    for keep, step in ((4, 20), (5, 40), (6, 30)):
        folder = opening(compose(f"pretrain.keep_checkpoints={keep}"))
        looks_unfinished(folder.folder, step)
        (folder.folder / "checkpoints").rename(folder.folder / "hidden")  # else the next one would be refused
    for hidden in Path("runs/pretrain").glob("*/hidden"):
        hidden.rename(hidden.with_name("checkpoints"))
    with pytest.raises(ConfigError, match="at step 40; it differs from this one in pretrain.keep_checkpoints"):
        opening(compose())


def test_a_run_that_has_begun_is_not_refused_later(compose: Compose) -> None:
    own = opening(compose("pretrain.keep_checkpoints=1")).folder
    write_status(own, Status(state="running"))
    looks_unfinished(opening(compose()).folder, 20)
    assert opening(compose("pretrain.keep_checkpoints=1")).folder == own


def test_another_learning_rate_is_reported(compose: Compose, capsys: pytest.CaptureFixture[str]) -> None:
    folder = opening(compose()).folder
    looks_unfinished(folder, 20)
    other = opening(compose("optimizer.lr=0.5")).folder
    assert folder.exists() and not (other / "checkpoints").exists()
    told = capsys.readouterr().out
    assert f"{folder} is an unfinished pretraining at step 20" in told
    assert "optimizer.lr (0.003 there, 0.5 here)" in told and "give optimizer.lr=0.003" in told
    assert "mv " not in told.replace(str(folder), "")


@pytest.mark.parametrize(
    "changes", [("model.hidden_size=64", "optimizer.lr=0.5", "pretrain.seed=9", "model.intermediate_size=32"), ()]
)
def test_quite_another_training_is_not_reported(
    compose: Compose, capsys: pytest.CaptureFixture[str], tmp_path: Path, changes: tuple[str, ...]
) -> None:
    looks_unfinished(opening(compose()).folder, 20)
    if not changes:  # the same configuration on other examples
        (tmp_path / "artifacts/examples/manifest.json").write_text("{}")
    other = opening(compose(*changes)).folder
    assert not (other / "checkpoints").exists()
    assert "unfinished" not in capsys.readouterr().out


@pytest.fixture
def changed_code(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """After it is called, the fingerprint is that of code and a torch that differ."""

    def change() -> None:
        code, versions = stage_run.code_fingerprint, stage_run.stage_versions
        monkeypatch.setattr(
            stage_run, "code_fingerprint", lambda stage: {**code(stage), "bertline.modeling.bert": "other"}
        )
        monkeypatch.setattr(stage_run, "stage_versions", lambda *asked: {**versions(*asked), "torch": "99.1"})

    return change


def test_a_run_of_other_code_is_reported_with_the_commit_that_resumes_it(
    compose: Compose,
    changed_code: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stage_run, "git_commit", lambda: "0123456789abcdef")
    begun = train(compose(), stop_at=30)
    changed_code()
    capsys.readouterr()
    new = opening(compose()).folder
    told = capsys.readouterr().out
    assert begun.exists() and not (new / "checkpoints").exists()
    assert f"{begun} is an unfinished pretraining at step 30" in told
    assert "the code (bertline.modeling.bert)" in told and "torch (" in told and "99.1 here" in told
    assert "stop this one and check out 0123456789ab." in told
