"""An unfinished pretraining beside a new one: gone on with where no weight changes, else told of; by `open_stage`."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import pretraining_failures as failures
import probing_inputs as language
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import write_json
from bertline.modeling.huggingface import load_pretraining_model
from bertline.orchestration import stage_run, unfinished, worker
from bertline.orchestration.stage_run import open_stage
from bertline.orchestration.status import Status, hold_lock, read_status, write_status
from bertline.pretraining.identity import FREE_KEYS
from bertline.pretraining.mask_predictions import read_mask_predictions
from bertline.pretraining.validation import ValidationProbe
from bertline.training.checkpoints import CheckpointFolder
from unfinished_runs import BEGIN, CODE, STEPS, WORK, curve, frozen, looks_unfinished, opening, train

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


def test_the_free_keys_given_here_are_all_there_are() -> None:
    given = {override.partition("=")[0] for override in OTHER_FREE_KEYS}
    assert {key for key in FREE_KEYS if any(each == key or each.startswith(f"{key}.") for each in given)} == {
        *FREE_KEYS
    }


def test_other_keys_that_change_no_weights_end_in_the_weights_of_an_undisturbed_run(
    compose: Compose, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = train(compose()).rename(tmp_path / "alone")

    begun = train(compose(), stop_at=30)
    capsys.readouterr()
    folder = train(compose(*OTHER_FREE_KEYS))
    printed = capsys.readouterr().out
    assert f"pretraining resumes {begun} from step 30, now in {folder}" in printed
    for override in OTHER_FREE_KEYS:
        assert override.partition("=")[0] in printed
    assert not begun.exists()

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
    assert frozen(folder)["went_on_from"] == [
        {"fingerprint": begun.name, "step": 30, "differs": frozen(folder)["went_on_from"][0]["differs"]}
    ]


def test_a_diverged_run_is_gone_on_with_once_it_may_roll_back_more_often(
    compose: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The promise of `FREE_KEYS`, kept by the pipeline; it ends as a run that was allowed to from the start."""
    failures.poison((4 * 24, 4 * 30), patch=monkeypatch.setattr)  # the examples of steps 24 to 29
    allowed = compose("pretrain.health.max_rewinds=1")
    alone = train(allowed).rename(tmp_path / "alone")

    with open_stage("pretrain", compose("pretrain.health.max_rewinds=0")) as stage:
        assert worker.main(stage.folder, WORK) != 0
    assert "max_rewinds=0" in read_status(stage.folder).message
    folder = train(allowed)
    assert not stage.folder.exists()
    assert [each["step"] for each in frozen(folder)["went_on_from"]] == [20]
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
    kept = train(compose("pretrain.health.max_rewinds=8"), stop_at=40)
    assert CheckpointFolder(kept / "checkpoints", keep=1).load_newest().state["best"]["step"] == 10  # type: ignore[union-attr]
    other = train(compose("pretrain.validation_sequences=8"))
    assert CheckpointFolder(other / "checkpoints", keep=1).load_newest().state["best"]["step"] == 50  # type: ignore[union-attr]


def test_a_worker_of_its_own_resumes_and_mlflow_shows_one_whole_curve(compose: Compose, tmp_path: Path) -> None:
    """As the recipe does it, worker and all: nothing of this happens in the process of the test."""
    tracked = ("tracking.enabled=true", f"tracking.uri=sqlite:///{tmp_path / 'mlflow.db'}")
    begun = train(compose(), stop_at=30)
    with open_stage("pretrain", compose("pretrain.health.max_rewinds=9", *tracked)) as stage:
        metrics = stage.work(WORK)
        stage.finish(metrics)
    assert metrics["steps"] == STEPS
    assert not begun.exists()
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        steps = database.execute("select step from metrics where key = 'val/mlm_loss' order by step").fetchall()
        (tag,) = database.execute("select value from tags where key = 'bertline.went_on_from'").fetchall()
    assert [step for (step,) in steps] == [0, 10, 20, 30, 40, 50, 60]
    assert tag == (begun.name,)


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


def test_a_run_with_checkpoints_of_its_own_resumes_from_those(compose: Compose) -> None:
    changed = compose("pretrain.keep_checkpoints=1")
    own = opening(changed).folder
    looks_unfinished(own, 10)
    looks_unfinished(opening(compose("pretrain.seed=3")).folder, 5)
    other = opening(compose()).folder  # takes over `own`, which it takes back
    assert (other / "checkpoints/step-00000010.pt").exists()
    looks_unfinished(opening(compose("pretrain.keep_checkpoints=2", "pretrain.seed=4")).folder, 50)
    assert opening(compose()).folder == other
    assert (other / "checkpoints/step-00000010.pt").exists()


def test_a_run_that_is_at_work_is_told_of_and_not_touched(compose: Compose, capsys: pytest.CaptureFixture[str]) -> None:
    folder = opening(compose()).folder
    looks_unfinished(folder, 20)
    with hold_lock(folder):
        other = opening(compose("pretrain.keep_checkpoints=1")).folder
    assert folder.exists() and not (other / "checkpoints").exists()
    told = capsys.readouterr().out
    assert f"{folder} is an unfinished pretraining at step 20, at work now" in told and "stop both" in told
    # Stopped as it says, it is gone on with, though the other folder is there by now.
    (other / "log").write_text("began anew\n")
    assert opening(compose("pretrain.keep_checkpoints=1")).folder == other
    assert (other / "checkpoints/step-00000020.pt").exists() and not folder.exists()


def test_the_furthest_of_several_is_gone_on_with(compose: Compose) -> None:
    # Made under other names, lest each takes over the one before.
    for keep, step in ((4, 20), (5, 40), (6, 30)):
        folder = opening(compose(f"pretrain.keep_checkpoints={keep}")).folder
        looks_unfinished(folder, step)
        folder.rename(folder.with_name(f"away-{keep}"))
        (folder.with_name(f"away-{keep}") / "checkpoints").rename(folder.with_name(f"away-{keep}") / "hidden")
    for hidden in Path("runs/pretrain").glob("*/hidden"):
        hidden.rename(hidden.with_name("checkpoints"))
    folder = opening(compose()).folder
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["step-00000040.pt"]


def test_another_learning_rate_is_told_of_and_not_gone_on_with(
    compose: Compose, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = opening(compose()).folder
    looks_unfinished(folder, 20)
    other = opening(compose("optimizer.lr=0.5")).folder
    assert folder.exists() and not (other / "checkpoints").exists()
    told = capsys.readouterr().out
    assert f"{folder} is an unfinished pretraining at step 20" in told
    assert "optimizer.lr (0.003 there, 0.5 here)" in told and "give optimizer.lr=0.003" in told
    assert "resume_from" not in told


@pytest.mark.parametrize(
    "changes", [("model.hidden_size=64", "optimizer.lr=0.5", "pretrain.seed=9", "model.intermediate_size=32"), ()]
)
def test_quite_another_training_is_not_told_of(
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


def test_a_run_of_other_code_is_told_of_and_gone_on_with_only_when_asked(
    compose: Compose, changed_code: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    begun = train(compose(), stop_at=30)
    changed_code()
    capsys.readouterr()
    new = opening(compose()).folder
    told = capsys.readouterr().out
    assert begun.exists() and not (new / "checkpoints").exists()
    assert f"{begun} is an unfinished pretraining at step 30" in told
    assert "the code (bertline.modeling.bert)" in told and "torch (" in told and "99.1 here" in told
    assert f"+resume_from={begun}" in told

    for _ in range(2):  # the same command again after a kill
        assert opening({**compose(), "resume_from": str(begun)}).folder == new
        assert not begun.exists()
    assert train({**compose(), "resume_from": str(begun)}) == new
    assert len(curve(new, "train/")) == 3
    (lineage,) = frozen(new)["went_on_from"]
    assert (lineage["fingerprint"], lineage["step"]) == (begun.name, 30)
    assert "bertline.modeling.bert" in lineage["differs"] and "99.1 here" in lineage["differs"]


def test_what_is_asked_for_must_be_an_unfinished_run_of_this_training(compose: Compose) -> None:
    folder = opening(compose()).folder
    with pytest.raises(ConfigError, match="not an unfinished pretraining"):
        opening({**compose("pretrain.seed=2"), "resume_from": str(folder)})
    looks_unfinished(folder, 20)
    with pytest.raises(ConfigError, match=r"another training than this one.*pretrain\.seed \(0 there, 2 here\)"):
        opening({**compose("pretrain.seed=2"), "resume_from": str(folder)})
    same = compose("pretrain.keep_checkpoints=1")
    with hold_lock(folder), pytest.raises(ConfigError, match="a worker is at now"):
        opening({**same, "resume_from": str(folder)})
    assert folder.exists()
    with pytest.raises(ConfigError, match="stage corpus"), open_stage("corpus", {**same, "resume_from": "x"}):
        pass


def test_a_run_with_checkpoints_of_its_own_is_not_thrown_away_for_the_one_asked_for(
    compose: Compose, changed_code: Callable[[], None]
) -> None:
    folder = opening(compose()).folder
    looks_unfinished(folder, 20)
    changed_code()
    own = opening(compose()).folder
    looks_unfinished(own, 10)
    with pytest.raises(ConfigError, match="delete that folder"):
        opening({**compose(), "resume_from": str(folder)})
    assert (own / "checkpoints/step-00000010.pt").exists() and folder.exists()


def test_a_run_folder_of_an_earlier_bertline_counts_as_other_code(
    compose: Compose, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = opening(compose()).folder
    looks_unfinished(folder, 20)
    old = {key: value for key, value in frozen(folder).items() if key not in ("made_of", "commit", "went_on_from")}
    (folder / "config.yaml").write_text(yaml.safe_dump({**old, "fingerprint": "0" * 12}))
    folder = folder.rename(folder.with_name("0" * 12))
    assert not (opening(compose()).folder / "checkpoints").exists()
    assert "the code (of an earlier bertline)" in capsys.readouterr().out
    assert folder.exists()


KILLED = """
import json, os, shutil, signal, sys
from pathlib import Path
from bertline.orchestration import stage_run
from bertline.orchestration.stage_run import open_stage
moment, after, mapping = sys.argv[1], sys.argv[2] == "after", json.loads(sys.argv[3])
stage_run.code_fingerprint = lambda stage: json.loads(sys.argv[4])
owners = {"rmtree": (shutil, "rmtree"), "rename": (Path, "rename"), "freeze": (stage_run, "write_atomically")}
owner, name = owners[moment]
original = getattr(owner, name)
def dying(*args, **kwargs):
    if after:
        original(*args, **kwargs)
    elif moment == "rmtree":
        next(Path(args[0]).iterdir()).unlink()
    os.kill(os.getpid(), signal.SIGKILL)
setattr(owner, name, dying)
with open_stage("pretrain", mapping):
    pass
"""


@pytest.mark.parametrize(
    ("moment", "when"),
    [("rmtree", "before"), ("rename", "before"), ("rename", "after"), ("freeze", "before"), ("freeze", "after")],
)
def test_killed_at_any_moment_of_the_taking_over_the_next_start_goes_on(
    compose: Compose, moment: str, when: str
) -> None:
    changed = compose("pretrain.keep_checkpoints=1")
    new = opening(changed).folder  # begun before, without having saved anything
    begun = opening(compose()).folder
    looks_unfinished(begun, 20)
    died = subprocess.run(
        [sys.executable, "-c", KILLED, *(moment, when, json.dumps(changed), json.dumps(CODE))], check=False
    )
    assert died.returncode == -signal.SIGKILL
    assert sum(path.name == "step-00000020.pt" for path in Path("runs").rglob("*.pt")) == 1
    assert opening(changed).folder == new
    assert (new / "checkpoints/step-00000020.pt").exists() and (new / "metrics.jsonl").exists()
    assert not begun.exists()
    assert [each["fingerprint"] for each in frozen(new)["went_on_from"]] == [begun.name]
    assert frozen(new)["config"]["pretrain"]["keep_checkpoints"] == 1


def test_two_that_start_together_take_it_over_once(compose: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second finds nothing left to move, whatever it saw before it got its turn."""
    changed = compose("pretrain.keep_checkpoints=1")
    begun = opening(compose()).folder
    looks_unfinished(begun, 20)
    found = unfinished._take_over_found
    calls: list[Path] = []

    def counted(folder: Path, made_of: Any) -> None:
        calls.append(folder)
        found(folder, made_of)

    monkeypatch.setattr(unfinished, "_take_over_found", counted)
    turn = unfinished._one_at_a_time

    def other_first(runs: Path) -> Any:
        monkeypatch.setattr(unfinished, "_one_at_a_time", turn)
        opening(changed)
        return turn(runs)

    monkeypatch.setattr(unfinished, "_one_at_a_time", other_first)
    new = opening(changed).folder
    assert len(calls) == 1
    assert (new / "checkpoints/step-00000020.pt").exists()
