"""A whole sweep of every kind of task."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

import finetuning_inputs as inputs
import finished_tasks
import tiny
from bertline.finetuning.task_file import read_task_file
from bertline.foundation.errors import ConfigError
from bertline.sweep.bench import plan_of
from bertline.sweep.forecast import with_forecast
from bertline.sweep.run import run_sweep
from bertline.tokenization.tokenizer import Tokenizer


@pytest.mark.parametrize("name", sorted(finished_tasks.KINDS))
def test_the_best_model_of_every_kind_gives_again_what_the_sweep_says_of_it(name, tmp_path):
    job = finished_tasks.sweep_job(name, tmp_path)
    figures = run_sweep(job)
    folder = job.run_folder / "result"
    result = json.loads((folder / "result.json").read_text())
    metric = job.task.metric
    assert result["task_kind"] == job.task.kind
    assert figures[f"test/{metric}_mean"] == result["best"]["test"]
    others = [arm for arm in result["arms"] if arm != "encoder"]
    assert others == (["combined"] if name == "retrieval" else [])
    assert set(result["comparisons"]) == {*result["baselines"], *others}
    for name_of_baseline in result["baselines"]:
        against = result["comparisons"][name_of_baseline]
        test = result["baselines"][name_of_baseline]["test"]
        assert against == {"difference": pytest.approx(result["best"]["test"] - test)}  # one seed tells no more

    task = read_task_file(folder / "best")
    model = task.kind.load_model(folder / "best").eval()
    rows = task.kind.read(job.task_folder, "test")
    predictions = task.kind.predict(model, task.kind.encode(rows, Tokenizer.load(folder / "best")), tiny.machine())
    scores = task.kind.scores(task.kind.statistics(rows, predictions, task.calibration))
    assert scores[metric] == pytest.approx(result["best"]["test"], abs=1e-6)
    table = pq.read_table(folder / "predictions.parquet")
    assert (
        table["predicted"].to_pylist() == task.kind.table(rows, predictions, task.calibration)["predicted"].to_pylist()
    )
    not_right = [verdict for verdict in table["correct"].to_pylist() if float(verdict) < 1]
    assert len(result["examples"]["confident_errors"]) <= len(not_right)


@pytest.mark.parametrize("name", sorted(finished_tasks.KINDS))
def test_steps_of_every_kind_are_measured_before_it_begins(name, tmp_path, capfd):
    with_forecast(plan_of(finished_tasks.sweep_job(name, tmp_path)))
    assert " s a step of " in capfd.readouterr().out


def test_an_encoder_with_too_few_positions_for_a_task_is_a_clear_error(tmp_path):
    short = inputs.write_encoder(tmp_path / "short", max_position_embeddings=8)
    job = finished_tasks.sweep_job("question_answering", tmp_path / "job", encoders=(str(short),))
    with pytest.raises(ConfigError, match=r"short has positions for 8 tokens.*tasks\.question_answering"):
        run_sweep(job)
    assert not (job.run_folder / "studies.db").exists()  # found before any work


def test_a_search_has_an_arm_that_combines_each_seed_with_bm25(tmp_path):
    job = finished_tasks.sweep_job("retrieval", tmp_path, num_seeds=2)
    figures = run_sweep(job)
    result = json.loads((job.run_folder / "result" / "result.json").read_text())
    combined, encoder = result["arms"]["combined"], result["arms"]["encoder"]
    assert [seed["seed"] for seed in combined["seeds"]] == [seed["seed"] for seed in encoder["seeds"]] == [0, 1]
    assert set(combined["settings"]) == {"k", "weight"}
    metric = job.task.metric
    assert figures[f"combined/test/{metric}_mean"] == combined["test_mean"]
    assert figures[f"combined/test/{metric}_std"] == combined["test_std"]
    # Dev and test are the same rows here, and a weight near 1 or 0 would have kept either ranking.
    assert combined["dev_mean"] == pytest.approx(combined["test_mean"])
