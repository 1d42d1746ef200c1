"""Few rows: choices are made on folds of train and dev together, and the models that are scored learn from all."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace

import numpy as np
import pytest

import finished_tasks
from bertline.baselines.base import BaselineInputs, dev_score
from bertline.finetuning import finetune
from bertline.finetuning.task_file import read_task_file
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import read_json, write_json
from bertline.kinds.classification import Classification
from bertline.sweep import bench as benches
from bertline.sweep import forecast, repetitions
from bertline.sweep.bench import Bench, plan_of, split_sizes
from bertline.sweep.folds import CALIBRATION, calibration_split, folds_of, has_folds, rows_of
from bertline.tasks.stored_rows import write_rows


@pytest.fixture
def job(inputs, input_folder, tmp_path):
    def make(fold_rows=300, method="full", **task):
        sweep = inputs.sweep(
            space={}, num_seeds=2, random_weights_baseline="never", methods=("frozen", "contrastive", "full"),
            fold_rows=fold_rows, fine_tuning=inputs.fine_tuning(learning_rate=1e-2, method=method),
        )  # fmt: skip
        fields = {"label_efficiency_rows": (), "num_train_rows": None, **task}
        return inputs.sweep_job(input_folder, tmp_path / "run", sweep=sweep, task=inputs.task(**fields))

    return make


def test_each_row_is_predicted_once_by_models_that_saw_neither_it_nor_its_source(inputs):
    rows = inputs.learnable_rows(83)
    rows = replace(rows, clusters=[f"author {number // 4}" for number in range(83)])
    folds = folds_of(rows, seed=1)
    assert sorted(np.concatenate([predicted for _, predicted in folds])) == list(range(83))
    for learned, predicted in folds:
        assert len(learned) + len(predicted) == 83
        assert {rows.clusters[row] for row in learned}.isdisjoint({rows.clusters[row] for row in predicted})


def test_folds_are_for_few_rows_whose_dev_was_not_given(inputs, job):
    assert has_folds(job())
    assert not has_folds(job(fold_rows=192))  # as many as there are
    assert not has_folds(job(source=inputs.table_source(dev_file="dev.csv")))
    assert not has_folds(job(label_efficiency_rows=(32,)))
    kind = Classification(inputs.task(), inputs.LABELS)
    assert len(rows_of(job(), kind, "train")) == len(rows_of(job(), kind, "dev")) == 192
    assert len(rows_of(job(fold_rows=0), kind, "train")) == 128


def test_out_of_fold_scores_are_those_of_models_without_the_fold(job, monkeypatch):
    seen = []

    def fine_tune(run, **named):
        seen.append(run)
        return finetune.fine_tune(run, **named)

    monkeypatch.setattr(benches, "fine_tune", fine_tune)
    bench = Bench(plan_of(job()))
    outcome = bench.out_of_fold("encoder", {"method": "frozen"}, seed=0, title="few")
    rows = bench.arm("encoder").split("dev").rows
    assert [len(run.train.rows) for run in seen] == [len(learned) for learned, _ in folds_of(rows, 0)]
    assert all(run.dev is None and run.most_steps == 40 for run in seen)
    assert len(outcome.statistics) == len(rows)
    assert outcome.scores["accuracy"] == np.mean(outcome.statistics[:, 0] == outcome.statistics[:, 1])


def test_a_forecast_follows_from_the_plan_and_the_seconds_of_a_step(inputs, job, monkeypatch):
    def seconds(made):
        return forecast.with_forecast(plan_of(made)).ends_s - time.time()

    monkeypatch.setattr(forecast, "_measured_step", lambda run, batches: (0.0, 100))
    rest = seconds(job())
    monkeypatch.setattr(forecast, "_measured_step", lambda run, batches: (1.0, 100))
    frozen, contrastive, folds = (
        seconds(job(**each)) - rest for each in ({"method": "frozen"}, {"method": "contrastive"}, {})
    )
    batch_size = plan_of(job()).fine_tuning.batch_size
    padded = 2.0 * 32 / batch_size
    assert contrastive - frozen == pytest.approx(padded * (2 * 40 + 5 * 20), abs=0.5)  # two seeds, and folds of half
    assert folds - contrastive > 5 * 20  # fine-tuning in a fold only chooses
    alone = replace(job(), sweep=replace(job().sweep, methods=("full",)))
    assert seconds(alone) - rest > 5 * 20 + 2 * 24  # two epochs of ten steps in a fold, of twelve a seed
    twice = replace(job(fold_rows=0), sweep=replace(job(fold_rows=0).sweep, num_seeds=5))
    assert seconds(twice) - rest == pytest.approx(2 * (seconds(job(fold_rows=0)) - rest), rel=0.1)


def test_a_sweep_on_folds_chooses_a_method_and_learns_from_all_rows(inputs, job, capfd):
    result = inputs.swept(job())[1]
    said = capfd.readouterr().out
    order = ["takes about", "baselines: most frequent label", "encoder, frozen:", "encoder, fine-tuned", "taken is"]
    assert [said.index(words) for words in order] == sorted(said.index(words) for words in order)
    (sentence,) = [one for one in result["note"].split(". ") if "taken is" in one]
    assert all(name in sentence for name in ("out of fold", "frozen", "adapted by contrast", "fine-tuned"))
    assert "folds of the 192 rows" in result["note"]
    assert result["rows"] == {"train": 192, "dev": 192, "test": 96}
    seeds = result["arms"]["encoder"]["seeds"]
    assert len({seed["scores"]["dev"]["accuracy"] for seed in seeds}) == 1  # of the folds


@pytest.mark.parametrize(
    ("scores", "taken", "why"),
    [
        ((0.5, 0.5, 0.5), "frozen", "taken is frozen 0.500, the cheapest of equals."),
        ((0.5, 0.51, 0.57), "contrastive", "since fine-tuned is ahead by less than the noise of 192 rows (0.071)."),
        ((0.5, 0.51, 0.59), None, "taken is fine-tuned 0.590."),
        ((0.5, 0.51, 0.4), "contrastive", "taken is adapted by contrast 0.510."),
    ],
)
def test_the_method_that_does_best_out_of_fold_is_taken_and_fine_tuning_if_beyond_the_noise(job, scores, taken, why):
    plan = plan_of(job())
    tried = repetitions.methods_tried(plan, {"encoder": [{}]})
    for one, score in zip(tried, scores, strict=True):
        write_json(one.folder(plan.job) / "outcome.json", {"diverged": False, "dev": {"accuracy": score}})
    points, (sentence,) = repetitions.with_best_methods(plan, {"encoder": [{}]}, tried)
    assert points == {"encoder": [{"method": taken} if taken else {}]}
    assert sentence.endswith(why)


def test_a_method_named_by_hand_is_the_only_one_and_refused_where_it_cannot_be_had(job, monkeypatch):
    plan = plan_of(job(method="frozen"))
    repetitions.check_method(plan)
    assert repetitions.methods_tried(plan, {"encoder": [{}]}) == []
    words = r"method is frozen \(quick=true\): .* one label a row.* 100 train rows; .* is classification of 192\."
    monkeypatch.setattr(repetitions, "_MOST_ROWS", 100)
    with pytest.raises(ConfigError, match=words):
        repetitions.check_method(plan)
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="one label a row"):
        repetitions.check_method(plan_of(job(method="contrastive", multi_label=True)))
    repetitions.check_method(plan_of(job(multi_label=True)))
    lacking = replace(job(multi_label=True), sweep=replace(job().sweep, methods=("frozen",)))
    with pytest.raises(ConfigError, match="sweep.methods is without full"):
        repetitions.check_method(plan_of(lacking))


def test_a_number_of_texts_is_learned_on_frozen_vectors_and_by_fine_tuning_but_not_by_contrast(
    inputs, input_folder, tmp_path
):
    def regression(methods, **changes):
        task = replace(finished_tasks.config_of("linear", **changes), label_efficiency_rows=(), num_train_rows=None)
        return plan_of(
            inputs.sweep_job(input_folder, tmp_path / "run", task=task, sweep=inputs.sweep(space={}, methods=methods))
        )

    plan = regression(("frozen", "contrastive", "full"))
    tried = repetitions.methods_tried(plan, {"encoder": [{}]})
    assert [one.params.get("method", "full") for one in tried] == ["frozen", "full"]
    repetitions.check_method(plan)
    assert repetitions.possible_methods(regression(("full",), head="cosine")) == ("full",)
    with pytest.raises(ConfigError, match=r"\(frozen alone\) regression"):
        repetitions.check_method(regression(("contrastive",)))


def test_early_stopping_is_refused_where_no_row_is_kept_from_training(job):
    stopping = {"fine_tuning": {"early_stopping_epochs": 2}}
    with pytest.raises(
        ConfigError, match=r"fine_tuning\.early_stopping_epochs needs rows .* below 300 rows .* has 192"
    ):
        repetitions.check_method(plan_of(job(**stopping)))
    repetitions.check_method(plan_of(job(0, **stopping)))


def test_baselines_on_folds_do_not_predict_rows_that_they_learned(inputs):
    rows = replace(inputs.learnable_rows(60), labels=np.random.default_rng(60).integers(0, 2, 60))
    kind = Classification(inputs.task(), inputs.LABELS)
    given = BaselineInputs(kind=kind, train=rows, dev=rows, tests={"test": rows}, folds=folds_of(rows, seed=0))
    for baseline in kind.baselines(given)[1:]:
        dev, learned = (dev_score(kind, rows, baseline.predictions[split]) for split in ("dev", "test"))
        assert dev < 0.6 <= learned


def test_test_rows_change_no_choice(inputs, job, input_folder, tmp_path):
    first = inputs.swept(job())[1]
    other = tmp_path / "other"
    shutil.copytree(input_folder, other)
    write_rows(other / "task", "test", inputs.learnable_rows(96, seed=9))
    second = inputs.swept(replace(job(), task_folder=other / "task", run_folder=tmp_path / "second"))[1]
    kept = ("note", "num_trials", "start")
    assert {key: first[key] for key in kept} == {key: second[key] for key in kept}
    dev = [[seed["scores"]["dev"] for seed in one["arms"]["encoder"]["seeds"]] for one in (first, second)]
    assert dev[0] == dev[1]


@pytest.mark.parametrize("fold_rows", [300, 0])
def test_rows_whose_label_looks_wrong_are_in_the_result_and_in_a_file(inputs, job, input_folder, tmp_path, fold_rows):
    folder, rows = tmp_path / "inputs", inputs.learnable_rows(128, seed=0)
    shutil.copytree(input_folder, folder)
    labels, wrong = rows.labels.copy(), sorted(range(128), key=lambda row: len(rows.texts[row]))[-2:]  # clear cases
    labels[wrong] = 1 - labels[wrong]
    write_rows(folder / "task", "train", replace(rows, labels=labels))
    made = replace(job(fold_rows), task_folder=folder / "task")
    made = replace(made, sweep=replace(made.sweep, methods=("frozen",), num_seeds=1))
    doubtful = inputs.swept(made)[1]["doubtful_labels"]
    assert int(doubtful["rows"][0]["id"]) in wrong
    listed = read_json(made.run_folder / "result" / "doubtful_labels.json")
    assert [row["id"] for row in listed[:20]] == [row["id"] for row in doubtful["rows"]]
    assert len(listed) == doubtful["number"]


def test_half_of_dev_is_set_aside_where_that_is_enough(inputs, job):
    kind = Classification(inputs.task(), inputs.LABELS)

    def halves(**changes):
        made = job(0, **changes)
        made = replace(made, sweep=replace(made.sweep, calibration_rows=32))
        return calibration_split(made), [rows_of(made, kind, name) for name in ("dev", CALIBRATION)], split_sizes(made)

    split, (chosen_on, aside), sizes = halves()
    assert split == CALIBRATION and (sizes["dev"], sizes[CALIBRATION]) == (32, 32) == (len(chosen_on), len(aside))
    assert sorted(map(int, chosen_on.ids + aside.ids)) == list(range(64))
    assert set(chosen_on.ids[:32]) != set(map(str, range(32)))  # no order of the file tells the halves apart
    assert calibration_split(job(0)) == "dev"
    few = job(0)
    assert calibration_split(replace(few, sweep=replace(few.sweep, calibration_rows=33))) == "dev"
    folds = job()
    assert calibration_split(replace(folds, sweep=replace(folds.sweep, calibration_rows=32))) == "dev"


def test_the_half_that_was_set_aside_chooses_nothing_and_makes_the_sets_of_labels(inputs, job, input_folder, tmp_path):
    made = replace(job(0, threshold_metric="accuracy"), run_folder=tmp_path / "first")
    sweep = replace(made.sweep, methods=("full",), num_seeds=1, calibration_rows=32, exported="winner")
    made = replace(made, sweep=sweep)
    first = inputs.swept(made)[1]
    other, rows = tmp_path / "other", inputs.learnable_rows(64, seed=1)
    shutil.copytree(input_folder, other)
    aside = [*map(int, rows_of(made, Classification(made.task, inputs.LABELS), CALIBRATION).ids)]
    labels = rows.labels.copy()
    labels[aside] = 1 - labels[aside]
    write_rows(other / "task", "dev", replace(rows, labels=labels))
    second = inputs.swept(replace(made, task_folder=other / "task", run_folder=tmp_path / "second"))[1]
    kept = ("note", "rows", "best")
    assert {key: first[key] for key in kept} == {key: second[key] for key in kept}
    assert first["winner"]["name"] == second["winner"]["name"]
    assert first["label_sets"]["rows"] == "half of dev" and first["label_sets"]["num_rows"] == 32
    assert first["label_sets"]["by_coverage"]["0.9"]["coverage"] > 0.8
    sets = [
        read_task_file(tmp_path / run / "result" / "best").label_sets.lowest_probability(0.9)
        for run in ("first", "second")
    ]
    assert sets[1] < 0.5 < sets[0]  # wrong labels are unlikely
    folders = ["best", *["winner"] * (first["winner"]["name"] != "encoder")]
    assert all(read_task_file(tmp_path / "first" / "result" / folder).label_sets for folder in folders)


@pytest.mark.parametrize(("fold_rows", "num_rows"), [(300, 192), (0, 96)])
def test_a_label_curve_has_draws_of_shares_of_the_rows_for_the_encoder_and_the_best_ngrams(
    inputs, job, fold_rows, num_rows
):
    made = job(fold_rows, num_train_rows=None if fold_rows else 96)
    sweep = {"methods": ("frozen",), "num_seeds": 1, "num_label_efficiency_seeds": 2, "exported": "winner"}
    result = inputs.swept(replace(made, sweep=replace(made.sweep, label_curve=True, **sweep)))[1]
    curves = result["label_curve"]["curves"]
    assert set(curves) >= {"encoder"} and len(curves) == 2
    expected = {num_rows: 1, **{num_rows * eighths // 8: 2 for eighths in (1, 2, 4, 6)}}
    for name in curves:
        drawn = {row["rows"]: row for row in result["label_efficiency"] if row["arm"] == name}
        assert {rows: row["num_seeds"] for rows, row in drawn.items()} == expected
        whole = result["arms"]["encoder"]["test_mean"] if name == "encoder" else result["baselines"][name]["test"]
        assert drawn[num_rows]["test_mean"] == pytest.approx(whole)
        assert drawn[num_rows // 8]["test_mean"] < whole + 0.05
    assert bool(result["label_curve"]["sentence"]) == any("gain" in curve for curve in curves.values())
