"""A whole sweep: what it writes, what it does not repeat, and what does not depend on the workers."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from bertline.foundation.errors import MachineError
from bertline.foundation.manifests import read_manifest
from bertline.modeling.huggingface import load_classifier, read_labels
from bertline.sweep import repetitions, trials
from bertline.sweep.run import run_sweep
from bertline.tokenization.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def finished(tmp_path_factory, inputs, input_folder):
    """A finished sweep: its job, its figures and its result.json."""
    job = inputs.sweep_job(input_folder, tmp_path_factory.mktemp("sweep") / "run")
    figures = run_sweep(job)
    return job, figures, json.loads((job.run_folder / "result" / "result.json").read_text())


def events_of(job):
    return [json.loads(line) for line in (job.run_folder / "events.jsonl").read_text().splitlines()]


def test_the_result_has_everything_beside_its_baselines(finished):
    _, figures, result = finished
    assert result["num_trials"] == 6
    assert result["rows"] == {"train": 96, "dev": 64, "test": 96}
    for arm in ("encoder", "random_weights"):
        assert len(result["arms"][arm]["trials"]) == 6
        assert [seed["seed"] for seed in result["arms"][arm]["seeds"]] == [0, 1]
    assert result["arms"]["encoder"]["best_params"]["learning_rate"] > 1e-6
    assert figures["test/accuracy_mean"] == result["arms"]["encoder"]["test_mean"] > 0.9
    assert figures["tfidf/test/accuracy"] > 0.9
    assert figures["majority/test/accuracy"] < 0.7


def test_means_spreads_and_the_comparison_follow_from_the_seeds(finished):
    _, figures, result = finished
    scores = {arm: [seed["test"] for seed in result["arms"][arm]["seeds"]] for arm in result["arms"]}
    spreads = {arm: statistics.stdev(values) for arm, values in scores.items()}
    for arm, values in scores.items():
        assert result["arms"][arm]["test_mean"] == pytest.approx(statistics.fmean(values))
        assert result["arms"][arm]["test_std"] == pytest.approx(spreads[arm])
    threshold = 2 * math.sqrt((spreads["encoder"] ** 2 + spreads["random_weights"] ** 2) / 2)
    assert figures["threshold"] == pytest.approx(threshold)
    difference = statistics.fmean(scores["encoder"]) - statistics.fmean(scores["random_weights"])
    assert figures["difference"] == pytest.approx(difference)
    assert figures["beats_random_weights"] == int(difference > threshold)


def test_label_efficiency_has_every_arm_at_every_size_and_reuses_the_main_seeds(finished):
    _, _, result = finished
    table = {(row["rows"], row["arm"]): row for row in result["label_efficiency"]}
    assert set(table) == {
        (rows, arm) for rows in (32, 96) for arm in ("encoder", "random_weights", "tfidf_logistic_regression")
    }
    assert table[96, "encoder"]["test_mean"] == result["arms"]["encoder"]["test_mean"]
    assert table[96, "encoder"]["num_seeds"] == 2
    assert table[32, "encoder"]["num_seeds"] == 1
    assert (
        table[96, "tfidf_logistic_regression"]["test_mean"]
        == (result["baselines"]["tfidf_logistic_regression"]["test"])
    )


def test_the_best_classifier_predicts_what_the_tables_say(finished):
    job, _, result = finished
    folder = job.run_folder / "result"
    predictions = pq.read_table(folder / "predictions.parquet").to_pylist()
    hits = [row["label"] == row["predicted"] for row in predictions]
    best_seed = read_manifest(folder, kind="sweep", format_version=1)["best_seed"]
    assert statistics.fmean(hits) == pytest.approx(result["arms"]["encoder"]["seeds"][best_seed]["test"])
    assert sum(result["confusion_matrix"][i][i] for i in range(2)) == sum(hits)
    assert sum(map(sum, result["confusion_matrix"])) == len(predictions) == 96
    errors = result["examples"]["confident_errors"]
    assert len(errors) == min(20, len(hits) - sum(hits))
    assert [error["score"] for error in errors] == sorted((error["score"] for error in errors), reverse=True)
    assert read_labels(folder / "best") == ("low", "high")
    model, tokenizer = load_classifier(folder / "best").eval(), Tokenizer.load(folder / "best")
    row = predictions[0]
    ids = torch.tensor([[tokenizer.cls_id, *tokenizer.encode(row["text"]), tokenizer.sep_id]])
    with torch.no_grad():
        probabilities = torch.softmax(model(ids, torch.zeros_like(ids)), dim=-1)[0]
    assert read_labels(folder / "best")[int(probabilities.argmax())] == row["predicted"]
    assert float(probabilities.max()) == pytest.approx(row["score"], abs=1e-4)


def test_every_trial_and_repetition_is_an_event_once_and_only_repetitions_know_test(finished):
    job, _, _ = finished
    events = events_of(job)
    identities = [(event["arm"], event["kind"], event["number"]) for event in events]
    assert len(identities) == len(set(identities)) == 2 * (6 + 2 + 1)
    for event in events:
        assert ("test/accuracy" in event["metrics"]) == (event["kind"] != "trial")
        assert [epoch for epoch, _ in event["curve"]] == [1, 2, 3, 4, 5, 6]
        assert event["state"] == "COMPLETE"


def test_all_trials_end_before_test_is_read(finished):
    kinds = [event["kind"] for event in events_of(finished[0])]
    assert kinds == sorted(kinds, key=lambda kind: kind != "trial")


def test_a_finished_sweep_runs_nothing_again(finished, monkeypatch):
    job, figures, _ = finished

    def fail(*args, **kwargs):
        raise AssertionError("trained again")

    monkeypatch.setattr(trials, "fine_tune", fail)
    monkeypatch.setattr(repetitions, "fine_tune", fail)
    before = (job.run_folder / "result" / "result.json").read_bytes()
    assert run_sweep(job) == figures
    assert (job.run_folder / "result" / "result.json").read_bytes() == before


def test_the_result_does_not_depend_on_the_number_of_workers(finished, inputs, input_folder, tmp_path):
    _, figures, result = finished
    beside = inputs.sweep_job(input_folder, tmp_path / "run", runtime=inputs.runtime(sweep_workers=2))
    assert run_sweep(beside) == figures
    again = json.loads((beside.run_folder / "result" / "result.json").read_text())
    assert again == result


def test_without_the_random_arm_there_is_no_comparison(inputs, input_folder, tmp_path):
    job = inputs.sweep_job(
        input_folder,
        tmp_path / "run",
        sweep=inputs.sweep(random_weights_baseline=False, num_trials=1, num_seeds=1),
        task=inputs.task(label_efficiency_rows=()),
    )
    figures = run_sweep(job)
    result = json.loads((job.run_folder / "result" / "result.json").read_text())
    assert result["arms"]["random_weights"] is None
    assert result["comparison"] is None
    assert result["label_efficiency"] == []
    assert not any(key.startswith("random_weights") for key in figures)


def test_a_run_folder_that_cannot_be_made_is_a_clear_error(inputs, input_folder, tmp_path):
    (tmp_path / "file").write_text("")
    job = inputs.sweep_job(input_folder, Path(tmp_path / "file" / "run"))
    with pytest.raises(MachineError, match="cannot be written"):
        run_sweep(job)
