"""A whole sweep: what it writes, what it chooses by, what it does not repeat, and what it is compared with."""

from __future__ import annotations

import json
import statistics

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from bertline.encoders.loading import load_model
from bertline.finetuning.task_file import read_task_file
from bertline.foundation.errors import ConfigError
from bertline.modeling.checkpoint import Checkpoint
from bertline.sweep import repetitions, workers
from bertline.sweep.bench import plan_of
from bertline.sweep.results import data_hash
from bertline.sweep.run import run_sweep
from bertline.tasks.stored_rows import write_rows
from bertline.tokenization.tokenizer import Tokenizer
from finetuning_inputs import events_of

BASELINES = ("majority", "word_ngrams", "char_ngrams", "word_and_char_ngrams", "static_embeddings", "frozen_encoder")


def test_means_spreads_and_the_comparison_follow_from_the_seeds(finished):
    _, figures, result = finished
    scores = {arm: [seed["test"] for seed in result["arms"][arm]["seeds"]] for arm in result["arms"]}
    spreads = {arm: statistics.stdev(values) for arm, values in scores.items()}
    for arm, values in scores.items():
        assert result["arms"][arm]["test_mean"] == pytest.approx(statistics.fmean(values))
        assert result["arms"][arm]["test_std"] == pytest.approx(spreads[arm])
    found = result["comparison"]
    assert found["difference"] == pytest.approx(
        statistics.fmean(scores["encoder"]) - statistics.fmean(scores["random_weights"])
    )
    low, high = found["interval"]
    assert figures["beats_random_weights"] == int(low > 0) - int(high < 0)


def test_what_later_versions_are_compared_with_is_the_winner_on_dev(finished):
    job, _, result = finished
    standing = json.loads((job.run_folder / "result" / "standing.json").read_text())
    arm = result["arms"]["encoder"]
    assert standing["scores"] == pytest.approx([seed["dev"] for seed in arm["seeds"]])
    # 64 rows, each its own source: accuracy is a mean of rows, whose pseudo-values are the rows themselves.
    assert np.shape(standing["blocks"]) == (2, 64)
    assert np.mean(standing["blocks"], axis=1) == pytest.approx(standing["scores"])


def test_the_encoder_is_tested_against_every_arm_and_baseline_on_the_same_rows(finished):
    _, _, result = finished
    assert set(result["comparisons"]) == {"random_weights", *BASELINES}
    encoder = result["arms"]["encoder"]["test_mean"]
    against = result["comparisons"]["majority"]
    assert against["difference"] == pytest.approx(encoder - result["baselines"]["majority"]["test"])
    assert against["interval"][0] > 0
    assert against["verdict"] == "better"
    assert against["p_value"] < 0.05
    assert result["comparisons"]["word_ngrams"]["verdict"] != "better"
    assert result["comparisons"]["random_weights"].items() <= result["comparison"].items()


def test_every_test_has_intervals_and_paired_tests_of_its_own_rows(finished):
    _, _, result = finished
    by_split = result["comparisons_by_split"]
    assert by_split["test"] == result["comparisons"] and by_split["test_other"].keys() == by_split["test"].keys()
    encoder = result["arms"]["encoder"]
    low, high = encoder["intervals"]["test_other"]
    assert low <= encoder["scores"]["test_other"]["accuracy"]["mean"] <= high
    # 40 rows say less than 96.
    majority = [by_split[split]["majority"]["interval"] for split in ("test_other", "test")]
    assert majority[0][1] - majority[0][0] > majority[1][1] - majority[1][0]


def test_label_efficiency_has_every_arm_and_baseline_at_every_size_and_reuses_the_main_seeds(finished):
    _, _, result = finished
    table = {(row["rows"], row["arm"]): row for row in result["label_efficiency"]}
    assert set(table) == {(rows, arm) for rows in (32, 96) for arm in ("encoder", "random_weights", *BASELINES)}
    assert table[96, "encoder"]["test_mean"] == result["arms"]["encoder"]["test_mean"]
    assert table[96, "encoder"]["num_seeds"] == 2
    assert table[32, "encoder"]["num_seeds"] == 1
    words = result["baselines"]["word_ngrams"]
    assert table[96, "word_ngrams"]["test_mean"] == words["test"]


def test_the_best_model_predicts_what_the_tables_say(finished):
    job, _, result = finished
    folder = job.run_folder / "result"
    predictions = pq.read_table(folder / "predictions.parquet").to_pylist()
    hits = [row["correct"] for row in predictions]
    assert statistics.fmean(hits) == pytest.approx(result["best"]["test"])
    assert result["arms"]["encoder"]["seeds"][result["best"]["seed"]]["test"] == result["best"]["test"]
    assert result["winner"] == {"name": "encoder", "sentence": ""}  # whatever n-grams have: exported is `own`
    assert sum(result["confusion_matrix"][i][i] for i in range(2)) == sum(hits)
    assert sum(map(sum, result["confusion_matrix"])) == len(predictions) == 96
    assert Checkpoint.open(folder / "best").labels == ("low", "high")
    task = read_task_file(folder / "best")
    assert (task.kind.labels, task.kind.config.max_length, task.calibration) == (("low", "high"), 16, {})
    model, tokenizer = load_model(folder / "best", "sequence").eval(), Tokenizer.load(folder / "best")
    row = predictions[0]
    ids = torch.tensor([[tokenizer.cls_id, *tokenizer.encode(row["text"]), tokenizer.sep_id]])
    with torch.no_grad():
        probabilities = torch.softmax(model(ids, torch.zeros_like(ids)), dim=-1)[0]
    assert task.kind.labels[int(probabilities.argmax())] == row["predicted"]
    assert float(probabilities.max()) == pytest.approx(row["score"], abs=1e-4)


def test_every_trial_and_repetition_is_an_event_once_and_only_repetitions_know_test(finished):
    job, _, _ = finished
    events = events_of(job)
    identities = [(event["arm"], event["kind"], event["number"]) for event in events]
    assert len(identities) == len(set(identities)) == 2 * (6 + 2 + 1)
    kinds = [kind for _, kind, _ in identities]
    assert kinds == sorted(kinds, key=lambda kind: kind != "trial")  # all trials end before test is read
    for event in events:
        assert ("test/accuracy" in event["metrics"]) == (event["kind"] != "trial")
        epochs = int(event["params"].get("num_epochs", 6))
        assert [round(epochs * share) for share, _ in event["curve"]] == list(range(1, epochs + 1))
        assert event["state"] == "COMPLETE"


def test_a_finished_sweep_runs_nothing_again(finished, monkeypatch):
    job, figures, _ = finished

    def fail(*args, **kwargs):
        raise AssertionError("worked again")

    for module in (workers, repetitions):
        monkeypatch.setattr(module, "fine_tune", fail)
    monkeypatch.setattr(repetitions, "_read_test", fail)
    before = (job.run_folder / "result" / "result.json").read_bytes()
    assert run_sweep(job) == figures
    assert (job.run_folder / "result" / "result.json").read_bytes() == before


def test_the_random_arm_of_a_large_encoder_is_a_choice(inputs, input_folder, new_job, tmp_path):
    wide = inputs.write_encoder(tmp_path / "wide", num_hidden_layers=5)
    for folder, found in ((input_folder / "encoder", ("encoder", "random_weights")), (wide, ("encoder",))):
        job = new_job(job={"pretrain_folder": folder}, random_weights_baseline="up_to_small")
        assert tuple(plan_of(job).starts) == found
    # Nor is there one for a checkpoint that was not pretrained here, unless it is asked for.
    task = {"start_from": str(input_folder / "encoder")}
    for wanted, found in (("up_to_small", ("encoder",)), ("always", ("encoder", "random_weights"))):
        assert tuple(plan_of(new_job(task=task, random_weights_baseline=wanted)).starts) == found


def test_a_value_of_the_tasks_own_that_cannot_be_is_found_before_any_work(new_job):
    job = new_job(task={"fine_tuning": {"batch_size": 0}})
    with pytest.raises(ConfigError, match=r"tasks\.halves\.fine_tuning.*batch_size must be at least 1"):
        run_sweep(job)


def test_the_hash_of_the_data_is_that_of_its_rows(inputs, tmp_path):
    first, second = (inputs.write_task(tmp_path / name) for name in ("first", "second"))
    (second / "manifest.json").write_text("{}")
    assert data_hash(first) == data_hash(second)
    write_rows(second, "test", inputs.learnable_rows(5))
    assert data_hash(first) != data_hash(second)
