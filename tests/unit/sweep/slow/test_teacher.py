"""A sweep whose encoder learns from a teacher, and the same encoder without it."""

from __future__ import annotations

import re

import pytest
import torch

import finetuning_inputs as inputs
import finished_tasks
import tiny
from bertline.finetuning.finetune import fine_tune
from bertline.finetuning.task_file import read_task_file, write_task_file
from bertline.foundation.errors import ConfigError
from bertline.kinds.base import HeadSettings
from bertline.kinds.classification import Classification
from bertline.kinds.registry import task_kind
from bertline.sweep import repetitions
from bertline.sweep.bench import Bench, Teacher, plan_of
from bertline.tasks.stored_rows import write_rows
from bertline.tokenization.storage import copy_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from finetuning_inputs import swept


@pytest.fixture(scope="module")
def teacher(input_folder, tmp_path_factory):
    """A finished model with a random head, whose opinions no student has by itself."""
    folder, encoder = tmp_path_factory.mktemp("teacher"), input_folder / "encoder"
    kind = Classification(inputs.task(), inputs.LABELS)
    model = kind.new_model(encoder, HeadSettings(dropout_prob=0.0, seed=1, attention="plain"))
    with torch.no_grad():
        model.classifier.weight.mul_(50)
    kind.save_model(model, folder)
    copy_tokenizer(encoder, folder)
    write_task_file(folder, kind, {})
    return folder


@pytest.fixture
def job(input_folder, tmp_path, teacher):
    def make(name, **task):
        sweep = inputs.sweep(
            space={},
            num_seeds=2,
            random_weights_baseline="never",
            fine_tuning=inputs.fine_tuning(learning_rate=1e-2, soft_weight=0.9, num_epochs=6),
        )
        fields = {"label_efficiency_rows": (), "num_train_rows": 96, "teacher": str(teacher), **task}
        return inputs.sweep_job(input_folder, tmp_path / name, sweep=sweep, task=inputs.task(**fields))

    return make


def seeds(arm):
    return [{name: value for name, value in seed.items() if name != "time_s"} for seed in arm["seeds"]]


def test_the_same_student_without_its_teacher_is_an_arm_and_the_teachers_own_score_is_told(job, teacher, monkeypatch):
    computed = []
    original = Classification.soft_targets
    monkeypatch.setattr(
        Classification, "soft_targets", lambda *given: computed.append(len(given[2].labels)) or original(*given)
    )
    figures, result = swept(job("run"))
    assert computed == [96]  # once, for all trials and seeds
    assert set(result["arms"]) == {"encoder", "without_teacher"}
    kind, rows = read_task_file(teacher).kind, inputs.learnable_rows(96, seed=2)
    predictions = kind.predict(kind.load_model(teacher), kind.encode(rows, Tokenizer.load(teacher)), tiny.machine())
    assert result["teacher"]["test"] == kind.scores(kind.statistics(rows, predictions, {}))
    assert "without_teacher" in result["comparisons"]
    assert figures["without_teacher/test/accuracy_mean"] == result["arms"]["without_teacher"]["test_mean"]
    _, alone = swept(job("alone", teacher=None))
    assert (
        seeds(result["arms"]["without_teacher"]) == seeds(alone["arms"]["encoder"]) != seeds(result["arms"]["encoder"])
    )
    assert "teacher" not in alone


@pytest.mark.parametrize("name", sorted(finished_tasks.KINDS))
def test_every_kind_of_task_learns_from_a_teacher(name, tmp_path):
    teacher = finished_tasks.finish(name, tmp_path)
    started = finished_tasks.sweep_job(name, tmp_path / "job", teacher=teacher.folder)
    predictions = teacher.predictions()
    figures, result = swept(started)
    statistics = teacher.kind.statistics(teacher.rows, predictions, teacher.calibration)
    assert result["teacher"]["test"] == pytest.approx(teacher.kind.scores(statistics))
    assert {"encoder", "without_teacher"} <= set(result["arms"])
    assert f"without_teacher/test/{started.task.metric}_mean" in figures
    trained, alone = (
        fine_tune(Bench(plan_of(started)).run(arm, {}, num_train_rows=None, seed=0)).model.state_dict()
        for arm in ("encoder", "without_teacher")
    )
    assert any(not torch.equal(weights, alone[part]) for part, weights in trained.items())


def test_a_sweep_that_was_killed_ends_like_one_that_was_not(job, input_folder, monkeypatch):
    write_rows(input_folder / "task", "unlabelled", inputs.learnable_rows(64, seed=7))
    task = {"unlabelled": "rows.csv"}
    _, undisturbed = swept(job("run", **task))
    train, trained = repetitions._train, []

    def killed(bench, repetition):
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(repetition)
        return train(bench, repetition)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(repetitions, "_train", killed)
        swept(job("killed", **task))
    _, resumed = swept(job("killed", **task))
    assert len(trained) == 2
    for arm in ("encoder", "without_teacher"):
        assert seeds(resumed["arms"][arm]) == seeds(undisturbed["arms"][arm])
    assert seeds(resumed["arms"]["encoder"]) != seeds(resumed["arms"]["without_teacher"])


def test_what_a_teacher_must_share_is_named(teacher, input_folder, tmp_path):
    kind, tokenizer = read_task_file(teacher).kind, Tokenizer.load(teacher)

    def refused(message, folder=teacher, kind=kind, tokenizer=tokenizer):
        with pytest.raises(ConfigError, match=message):
            Teacher(folder, kind, tokenizer)

    plain = input_folder / "encoder"
    refused(rf"no task\.json.*not fine-tuned.*bertline finetune start_from={re.escape(str(plain))}", folder=plain)
    other = Tokenizer.load(inputs.write_encoder(tmp_path / "other", words=tiny.WORDS[::-1]))
    refused(r"another vocabulary.*soft targets.*student_layers", tokenizer=other)
    refused(
        "multi_label False.*True", kind=Classification(inputs.task(multi_label=True, metric="macro_f1"), inputs.LABELS)
    )
    refused(r"labels \('low', 'high'\).*\('high', 'low'\)", kind=task_kind(kind.config, ["high", "low"]))
    refused(r"32 tokens.*max_length, 64", kind=Classification(inputs.task(max_length=64), inputs.LABELS))


def test_a_teacher_is_refused_before_any_work(job, input_folder):
    started = job("run", teacher=str(input_folder / "encoder"))
    with pytest.raises(ConfigError, match="not fine-tuned"):
        swept(started)
    assert not (started.run_folder / "studies.db").exists()
