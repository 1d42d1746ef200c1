"""A whole sweep: what it writes, what it chooses by, what it does not repeat, and what it is compared with."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tiny
from bertline.foundation.manifests import write_manifest
from bertline.foundation.verdicts import AS_NUMBER
from bertline.kinds.regression.config import RegressionTaskConfig
from bertline.modeling.huggingface import read_config
from bertline.sweep import repetitions, workers
from bertline.tasks.config import ChoiceSpace
from bertline.tasks.stored_rows import FORMAT_VERSION, KIND, NumberRows, write_rows
from finetuning_inputs import events_of, swept

BASELINES = ("majority", "word_ngrams", "char_ngrams", "word_and_char_ngrams", "static_embeddings", "frozen_encoder")


def test_the_result_has_every_arm_and_its_baselines(finished):
    _, figures, result = finished
    assert result["format_version"] == 3
    assert (result["task_kind"], result["start"], result["num_trials"]) == ("classification", "pipeline", 6)
    assert result["rows"] == {"train": 96, "dev": 64, "test": 96, "test_other": 40}
    assert set(result["arms"]) == {"encoder", "random_weights"}
    for arm in result["arms"].values():
        assert [trial["state"] for trial in arm["trials"]] == ["COMPLETE"] * 6
        epochs = int(arm["trials"][0]["params"].get("num_epochs", 6))
        shares = [share for share, _ in arm["trials"][0]["curve"]]
        assert shares == pytest.approx([k / epochs for k in range(1, epochs + 1)])
        assert arm["trials"][0]["curve"][-1][1] == arm["trials"][0]["dev"]
        assert [seed["seed"] for seed in arm["seeds"]] == [0, 1]
        assert arm["test_interval"][0] <= arm["test_mean"] <= arm["test_interval"][1]
    assert result["arms"]["encoder"]["num_degenerate"] == 0
    assert result["arms"]["encoder"]["best_params"]["learning_rate"] > 1e-6
    assert figures["test/accuracy_mean"] == result["arms"]["encoder"]["test_mean"] > 0.9
    assert figures["word_ngrams/test/accuracy"] > 0.9
    assert figures["majority/test/accuracy"] < 0.7
    assert set(result["baselines"]) == set(BASELINES)


def test_of_the_best_configurations_the_best_mean_on_dev_wins_and_test_is_read_with_its_models_only(
    inputs, input_folder, tmp_path, monkeypatch
):
    read = []
    reading = repetitions._read_test
    monkeypatch.setattr(
        repetitions, "_read_test", lambda bench, one, is_best: read.append(one) or reading(bench, one, is_best=is_best)
    )
    job = inputs.sweep_job(
        input_folder,
        tmp_path / "run",
        sweep=inputs.sweep(
            num_best=3,
            fine_tuning=inputs.fine_tuning(num_epochs=1),
            space={"learning_rate": ChoiceSpace(kind="choice", values=(1e-4, 1e-3, 3e-3, 1e-2))},
            num_trials=4,
            random_weights_baseline="never",
        ),
        task=inputs.task(label_efficiency_rows=()),
    )
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


def test_a_reference_encoder_has_the_same_budget_and_reads_with_its_own_vocabulary(inputs, input_folder, tmp_path):
    # Another order of the words, and positions for eight tokens only.
    reference = inputs.write_encoder(tmp_path / "reference", words=tiny.WORDS[::-1], max_position_embeddings=8)
    job = inputs.sweep_job(
        input_folder,
        tmp_path / "run",
        sweep=inputs.sweep(reference_encoder=str(reference), random_weights_baseline="never", num_trials=2),
        task=inputs.task(label_efficiency_rows=(32,)),
    )
    figures, result = swept(job)
    own, other = result["arms"]["encoder"], result["arms"]["reference_encoder"]
    assert other["start"] == str(reference)
    assert [trial["params"] for trial in other["trials"]] == [trial["params"] for trial in own["trials"]]
    assert len(other["seeds"]) == len(own["seeds"])
    assert figures["reference/test/accuracy_mean"] == other["test_mean"] > 0.9
    assert "reference_encoder" in result["comparisons"]
    assert {row["arm"] for row in result["label_efficiency"]} == {"encoder", *BASELINES}


@pytest.mark.parametrize("start_from", ["random", "folder"])
def test_a_task_may_start_elsewhere_than_from_the_pipelines_encoder(inputs, input_folder, tmp_path, start_from, capsys):
    folder = inputs.write_encoder(tmp_path / "other", hidden_size=16, intermediate_size=32)
    start = str(folder) if start_from == "folder" else start_from
    job = inputs.sweep_job(
        input_folder,
        tmp_path / "run",
        sweep=inputs.sweep(num_trials=1, num_seeds=1),
        task=inputs.task(label_efficiency_rows=(), start_from=start),
    )
    figures, result = swept(job)
    assert result["start"] == start
    best = read_config(job.run_folder / "result" / "best")[0]
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


def test_an_encoder_is_scored_as_it_is_in_one_run(inputs, input_folder, tmp_path):
    random = np.random.default_rng(0)
    task_folder = tmp_path / "task"
    task_folder.mkdir()
    counts = {"train": 8, "dev": 12, "test": 12}
    for split, num_rows in counts.items():
        rows = inputs.learnable_rows(num_rows, seed=num_rows, pairs=True)
        write_rows(task_folder, split, NumberRows(rows.ids, rows.texts, rows.text_pairs, random.random(num_rows)))
    write_manifest(task_folder, kind=KIND, format_version=FORMAT_VERSION, content={"labels": [], "counts": counts})
    common = {name: getattr(inputs.task(), name) for name in ("dev_fraction", "test_fraction", "split_seed")}
    task = RegressionTaskConfig(
        kind="regression",
        source=inputs.table_source(text_pair_column="other"),
        low=0.0,
        high=1.0,
        head="cosine",
        pooling="mean",
        metric="spearman",
        max_length=16,
        num_train_rows=None,
        max_dev_rows=None,
        max_test_rows=None,
        label_efficiency_rows=(4,),
        start_from=None,
        teacher=None,
        unlabelled=None,
        num_trials=None,
        space={},
        fine_tuning={"num_epochs": 0},
        **common,
    )
    job = inputs.sweep_job(input_folder, tmp_path / "run", task=task, task_folder=task_folder)
    figures, result = swept(job)
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


def test_one_configuration_is_run_over_its_seeds_without_a_trial(inputs, input_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "run_trial", None)
    sweep = inputs.sweep(space={}, random_weights_baseline="never")
    figures, result = swept(inputs.sweep_job(input_folder, tmp_path / "run", sweep=sweep))
    assert result["arms"]["encoder"]["trials"] == []
    assert figures["num_trials"] == 0
    assert len(result["arms"]["encoder"]["seeds"]) == sweep.num_seeds
    assert "Nothing was tuned" in result["note"]


def test_without_the_random_arm_there_is_no_comparison(inputs, input_folder, tmp_path):
    job = inputs.sweep_job(
        input_folder,
        tmp_path / "run",
        sweep=inputs.sweep(random_weights_baseline="never", num_trials=1, num_seeds=1),
        task=inputs.task(label_efficiency_rows=()),
    )
    figures, result = swept(job)
    assert set(result["arms"]) == {"encoder"}
    assert result["comparison"] is None
    assert result["label_efficiency"] == []
    assert not any(key.startswith("random_weights") for key in figures)
