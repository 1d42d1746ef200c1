"""A whole sweep: what it writes, what it chooses by, what it does not repeat, and what it is compared with."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest

import bertline
import finished_tasks
import tiny
from bertline.finetuning.job import DivergedError
from bertline.foundation.errors import ConfigError
from bertline.foundation.seeds import seed_for
from bertline.foundation.verdicts import AS_NUMBER
from bertline.modeling.checkpoint import Checkpoint
from bertline.sweep import repetitions, run, workers
from bertline.sweep.repetitions import chosen_encoder
from bertline.sweep.run import run_sweep
from bertline.tasks.config import ChoiceSpace
from bertline.tasks.stored_rows import write_rows
from bertline.training import devices
from finetuning_inputs import events_of, swept
from sweep_pieces import result_of

BASELINES = ("majority", "word_ngrams", "char_ngrams", "word_and_char_ngrams", "static_embeddings", "frozen_encoder")


def test_of_the_best_configurations_the_best_mean_on_dev_wins_and_test_is_read_with_its_models_only(
    inputs, new_job, monkeypatch
):
    read = []
    reading = repetitions._read_test
    monkeypatch.setattr(
        repetitions, "_read_test", lambda bench, one, best: read.append(one) or reading(bench, one, best)
    )
    rates = ChoiceSpace(kind="choice", values=(1e-4, 1e-3, 3e-3, 1e-2))
    job = new_job(
        task={"label_efficiency_rows": ()}, num_best=3, fine_tuning=inputs.fine_tuning(num_epochs=1),
        space={"learning_rate": rates}, num_trials=4, random_weights_baseline="never",
    )  # fmt: skip
    _, result = swept(job)
    arm = result["arms"]["encoder"]
    assert len(arm["candidates"]) == 3
    winner = max(arm["candidates"], key=lambda candidate: candidate["dev_mean"])
    assert arm["best_params"] == winner["params"]
    assert [seed["dev"] for seed in arm["seeds"]] == winner["dev"]
    assert arm["dev_mean"] == pytest.approx(winner["dev_mean"])
    assert [repetition.params for repetition in read] == [winner["params"]] * 2
    assert result["best"]["dev"] == max(winner["dev"])
    events = [event for event in events_of(job) if event["kind"] == "seed"]
    assert len(events) == 6
    assert sum("test/accuracy" in event["metrics"] for event in events) == 2
    assert len(list(job.run_folder.glob("seeds/*/model"))) == 1  # the best; the others' weights are given up


def other_encoders(inputs, folder):
    """One with another order of the words, and one with positions for five tokens, which cuts most rows."""
    return (
        str(inputs.write_encoder(folder / "other", words=tiny.WORDS[::-1], max_position_embeddings=24)),
        str(inputs.write_encoder(folder / "short", max_position_embeddings=5, hidden_size=16)),
    )


def test_several_encoders_have_the_same_budget_and_every_two_a_verdict(inputs, new_job, tmp_path, capsys):
    names = other_encoders(inputs, tmp_path)
    few = {"label_efficiency_rows": (32,)}
    job = new_job(task=few, encoders=names, random_weights_baseline="never", num_trials=2)
    figures, result = swept(job)
    own, *others = (result["arms"][name] for name in ("encoder", "encoder_2", "encoder_3"))
    assert [arm["start"] for arm in (own, *others)] == ["pipeline", *names]
    for other in others:
        assert [trial["params"] for trial in other["trials"]] == [trial["params"] for trial in own["trials"]]
        assert [seed["seed"] for seed in other["seeds"]] == [seed["seed"] for seed in own["seeds"]]
    assert figures["encoder_2/test/accuracy_mean"] == others[0]["test_mean"] > 0.9
    pairs = result["encoders"]["pairs"]
    assert [(pair["first"], pair["second"]) for pair in pairs] == [
        ("encoder", "encoder_2"), ("encoder", "encoder_3"), ("encoder_2", "encoder_3"),
    ]  # fmt: skip
    for pair in pairs:
        first, second = result["arms"][pair["first"]], result["arms"][pair["second"]]
        assert pair["difference"] == pytest.approx(first["test_mean"] - second["test_mean"])
    assert result["comparisons"]["encoder_3"]["verdict"] == pairs[1]["verdict"]  # one pair, one verdict
    assert {row["arm"] for row in result["label_efficiency"]} == {"encoder", *BASELINES}
    parameters = [arm["num_parameters"] for arm in (own, *others)]
    assert parameters[0] > parameters[1] > parameters[2]  # fewer positions, then a smaller width
    assert "| other |" in capsys.readouterr().out.replace(f"{tmp_path.name}/", "")


def test_the_best_encoder_on_dev_is_as_if_the_task_had_started_from_it_and_test_is_not_read_before(
    inputs, input_folder, new_job, tmp_path, monkeypatch
):
    best, short = other_encoders(inputs, tmp_path)
    hidden, shown = tmp_path / "hidden.parquet", tmp_path / "task" / "test.parquet"
    shutil.copytree(input_folder / "task", tmp_path / "task")

    def job(run, start, *others, **changes):
        return new_job(
            run, task={"label_efficiency_rows": (32,), "start_from": start}, job={"task_folder": tmp_path / "task"},
            num_trials=2, random_weights_baseline="never", encoders=others, **changes,
        )  # fmt: skip

    def run_and_read(job):
        swept(job)
        return result_of(job)

    def choose(job, winners):
        arm = chosen_encoder(job, winners)
        hidden.rename(shown)
        return arm

    expected, _ = run_and_read(job("alone", best)), shown.rename(hidden)
    monkeypatch.setattr(run.repetitions, "chosen_encoder", choose)  # no row of test is there before the choice
    result = run_and_read(job("chosen", short, best, exported="best"))
    arms = result.pop("arms")
    assert arms["encoder"] == expected.pop("arms")["encoder"]
    assert arms["encoder_2"]["start"] == short and arms["encoder_2"]["dev_mean"] < arms["encoder"]["dev_mean"]
    pair = result.pop("encoders"), expected.pop("encoders")
    assert pair[0]["pairs"][0]["verdict"] == "better" and pair[1]["pairs"] == []
    for part in ("comparisons", "comparisons_by_split", "note"):  # these are of both encoders
        result.pop(part), expected.pop(part)
    assert result == expected
    folders = [tmp_path / run_folder / "result" / "best" for run_folder in ("alone", "chosen")]
    for name in ("model.safetensors", "task.json", "vocab.txt"):  # the task is said to start from it, too
        assert len({(folder / name).read_bytes() for folder in folders}) == 1


def test_an_encoder_that_is_named_twice_is_an_error_before_any_work(input_folder, new_job):
    own = input_folder / "encoder" / ".." / "encoder"
    job = new_job(encoders=(str(own),))
    with pytest.raises(ConfigError, match=r"sweep\.encoders: .*/encoder is named twice"):
        swept(job)
    assert not (job.run_folder / "studies.db").exists()


@pytest.mark.parametrize("start_from", ["random", "folder"])
def test_a_task_may_start_elsewhere_than_from_the_pipelines_encoder(inputs, new_job, tmp_path, start_from, capsys):
    folder = inputs.write_encoder(tmp_path / "other", hidden_size=16, intermediate_size=32)
    start = str(folder) if start_from == "folder" else start_from
    job = new_job(task={"label_efficiency_rows": (), "start_from": start}, num_trials=1, num_seeds=1)
    figures, result = swept(job)
    assert result["start"] == start
    best = Checkpoint.open(job.run_folder / "result" / "best").config
    assert best.hidden_size == (16 if start_from == "folder" else 32)
    # Random weights compared with random weights would be the same thing twice.
    assert ("random_weights" in result["arms"]) == (start_from == "folder")
    assert "One seed was run" in result["note"]
    # One seed has no spread, and without one nothing is better than anything.
    encoder = result["arms"]["encoder"]
    assert encoder["test_std"] is encoder["dev_std"] is encoder["test_interval"] is None
    assert all(set(found) == {"difference"} for found in result["comparisons"].values())
    assert not [key for key in figures if key.endswith(("_std", "beats_random_weights", "beats_strongest"))]
    written = (job.run_folder / "result" / "result.json").read_text() + capsys.readouterr().out
    assert "± 0.000" not in written
    assert not re.search(r"p_value|verdict|\bwins?\b", written)


def test_an_encoder_is_scored_as_it_is_in_one_run(inputs, tmp_path):
    as_it_is = {"fine_tuning": inputs.fine_tuning(num_epochs=0), "random_weights_baseline": "always", "num_seeds": 2}
    figures, result = swept(finished_tasks.sweep_job("cosine", tmp_path, **as_it_is))
    encoder, random_weights = result["arms"]["encoder"], result["arms"]["random_weights"]
    assert encoder["trials"] == []
    assert len(encoder["seeds"]) == 1
    assert encoder["best_params"] == {}
    assert len(random_weights["seeds"]) == 2  # other weights are another thing
    assert random_weights["test_std"] > 0
    assert "nothing is random" in result["note"]
    # Its one run is all there is, so the noise is known: that of the rows, and of the seeds of the other.
    assert figures["beats_random_weights"] == AS_NUMBER[result["comparison"]["verdict"]]
    assert encoder["test_std"] is None


def test_the_exported_model_has_the_scores_that_are_reported_whatever_it_was_trained_in(
    inputs, input_folder, new_job, tmp_path, monkeypatch
):
    monkeypatch.setattr(devices, "resolve_precision", lambda *_: "bf16")
    folder = tmp_path / "task"
    shutil.copytree(input_folder / "task", folder)
    rows = {split: inputs.learnable_rows(300, seed=seed) for seed, split in enumerate(("train", "dev", "test"))}
    for split, of_split in rows.items():
        of_split.labels[::3] ^= 1
        write_rows(folder, split, of_split)
    # Hardly trained, so that probabilities lie close to each other, and a threshold between many of them.
    fine_tuning = inputs.fine_tuning(num_epochs=1, learning_rate=3e-4)
    task = {"threshold_metric": "accuracy", "label_efficiency_rows": (), "num_train_rows": None}
    of_folder = {"task_folder": folder}
    job = new_job(task=task, job=of_folder, space={}, random_weights_baseline="never", fine_tuning=fine_tuning)
    _, result = swept(job)
    model = bertline.load(job.run_folder / "result" / "best")
    for split in ("dev", "test"):
        predicted = [inputs.LABELS.index(one.label) for one in model.predict(rows[split].texts)]
        assert result["best"][split] == pytest.approx(np.mean(rows[split].labels == predicted)), split


def test_rows_that_are_cut_are_counted_by_arm_and_split_and_said(inputs, new_job, tmp_path, capsys):
    # The task's texts have 2 to 8 words; the reference encoder has positions for six of them and its special tokens.
    reference = inputs.write_encoder(tmp_path / "reference", max_position_embeddings=8)
    job = new_job(
        task={"label_efficiency_rows": ()}, num_trials=1, num_seeds=1, random_weights_baseline="never",
        encoders=(str(reference),), fine_tuning=inputs.fine_tuning(num_epochs=1),
    )  # fmt: skip
    _, result = swept(job)
    assert result["arms"]["encoder"]["cut_rows"] == {"train": 0, "dev": 0, "test": 0}
    expected = {}
    for seed, (split, num_rows) in enumerate(inputs.NUM_ROWS.items()):
        texts = inputs.learnable_rows(num_rows, seed=seed).texts[: result["rows"][split]]
        expected[split] = sum(len(text.split()) > 6 for text in texts)
    assert result["arms"]["encoder_2"]["cut_rows"] == expected
    assert min(expected.values()) > 0
    counts = ", ".join(f"{expected[split]} of {result['rows'][split]} {split} rows" for split in expected)
    name = "/".join(reference.parts[-2:])
    said = capsys.readouterr().out
    sentence = f"Longer than max_length (8 tokens), and so cut for {name}: {counts}."
    assert sentence in result["note"] and f"halves: {sentence}\n" in said
    assert str(tmp_path) not in result["note"]


def diverging(function, diverges):
    def run(job, **options):
        if diverges(job):
            raise DivergedError("the loss of step 3 is nan")
        return function(job, **options)

    return run


@pytest.mark.parametrize("trials_diverge_too", [False, True])
def test_a_sweep_outlives_a_diverged_seed_and_an_arm_that_always_diverges(
    inputs, new_job, monkeypatch, capsys, trials_diverge_too
):
    fine_tuning = inputs.fine_tuning(num_epochs=6)
    job = new_job(task={"label_efficiency_rows": (32,)}, num_trials=1, num_seeds=3, fine_tuning=fine_tuning)
    unlucky = seed_for(job.sweep.seed, "repetition", 1)
    train = repetitions.fine_tune
    random_or_unlucky = diverging(train, lambda run: run.encoder == "random" or run.seed == unlucky)
    monkeypatch.setattr(repetitions, "fine_tune", random_or_unlucky)
    if trials_diverge_too:
        monkeypatch.setattr(workers, "fine_tune", diverging(train, lambda run: run.encoder == "random"))
    figures, result = swept(job)
    arm = result["arms"]["encoder"]
    assert set(result["arms"]) == {"encoder"}
    assert [seed["seed"] for seed in arm["seeds"]] == [0, 2]
    assert (result["num_seeds"], arm["num_diverged"], arm["num_degenerate"]) == (2, 1, 1)
    assert [candidate["num_diverged"] for candidate in arm["candidates"]] == [1]
    assert figures["test/accuracy_mean"] == arm["test_mean"]
    assert set(result["comparisons"]) == set(result["baselines"])
    assert result["comparison"] is None
    assert "Every run of the encoder from random weights diverged or failed" in result["note"]
    assert {row["arm"] for row in result["label_efficiency"]} == {"encoder", *result["baselines"]}
    assert "1 of its 3 seeds diverged and is left out of this." in capsys.readouterr().out
    states = [json.loads(line)["state"] for line in (job.run_folder / "events.jsonl").read_text().splitlines()]
    # The unlucky seed; and of random weights a trial for each number of epochs, or each of the three seeds.
    assert states.count("FAIL") == 1 + 3
    assert run_sweep(job) == figures  # and nothing of it is run again
