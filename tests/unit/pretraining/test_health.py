"""What is an alarm, when it is raised, and how often; on rows alone. The trainings are in tests/integration."""

import csv
import math
import re
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

import tiny
from bertline.pretraining.config import HealthConfig, PhaseConfig
from bertline.pretraining.health import ADVICE, Alarm, HealthMonitor, TrainingDivergedError, refuse_divergence
from bertline.pretraining.plan import Plan
from pretraining_inputs import HEALTH

CONF = Path(__file__).parents[3] / "conf"
# Every tenth row of a real run of an earlier docs_tiny: 200 steps of warm-up, 600 at length 16, then 6,400 at 64.
CURVE = Path(__file__).with_name("docs_tiny_curve.csv")
PHASES = [
    PhaseConfig(steps=600, max_length=16, global_batch_size=8),
    PhaseConfig(steps=9000, max_length=64, global_batch_size=8),
]
ENTROPIES = {"16": {"unigram_entropy": 6.587}, "64": {"unigram_entropy": 6.498}}
SMALL = HealthConfig(**{**HEALTH, "patience_steps": 100})


def defaults() -> HealthConfig:
    return HealthConfig(**OmegaConf.load(CONF / "pretrain/default.yaml").health)


def recorded() -> list[tuple[int, dict[str, float]]]:
    with CURVE.open() as handle:
        others = {"train/mlm_accuracy": 0.2, "train/nsp_loss": 0.4, "optim/skipped_steps": 0.0}
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(handle)]
        return [(int(row.pop("step")), {**others, **row}) for row in rows]


def alarms_of(
    rows, config: HealthConfig, *, warmup: int = 200, nsp_chance: float = 0.5, nsp_weight: float = 1.0
) -> list[Alarm]:
    examples = {"random_next_prob": nsp_chance, "lengths": ENTROPIES}
    monitor = HealthMonitor(config, warmup, tiny.mlm_nsp(nsp_weight), Plan(PHASES, 9600), examples)
    return [alarm for step, metrics in rows for alarm in monitor.take(step, metrics)]


def row(loss: float = 4.0, **changes: float) -> dict[str, float]:
    named = {
        "train/loss": loss, "train/mlm_loss": loss, "train/nsp_loss": 0.4, "train/mlm_accuracy": 0.2,
        "train/nsp_accuracy": 0.8, "optim/grad_norm": 1.0, "optim/skipped_steps": 0.0, "perf/data_wait_fraction": 0.01,
    }  # fmt: skip
    return {**named, **{key.replace("__", "/"): value for key, value in changes.items()}}


def rows_of(*metrics: dict[str, float], first: int = 620) -> list[tuple[int, dict[str, float]]]:
    return [(first + 20 * index, each) for index, each in enumerate(metrics)]


def kinds_and_steps(alarms: list[Alarm]) -> list[tuple[str, int]]:
    return [(alarm.kind, alarm.step) for alarm in alarms]


def test_a_healthy_run_raises_no_alarm():
    rows = recorded()
    assert len(rows) == 35
    assert alarms_of(rows, defaults()) == []


def test_a_loss_that_stays_at_the_unigram_entropy_is_said_once_and_only_after_warm_up_and_patience():
    frozen = [
        (step, {**metrics, "train/mlm_loss": max(6.45, metrics["train/mlm_loss"])}) for step, metrics in recorded()
    ]
    alarms = alarms_of(frozen, defaults())
    assert kinds_and_steps(alarms) == [("unigram_entropy", 1600)]  # 1,000 steps after the second phase began
    assert "6.450" in alarms[0].message and "by frequency alone: 6.498" in alarms[0].message
    late = alarms_of(frozen, defaults(), warmup=3000)
    assert kinds_and_steps(late) == [("unigram_entropy", 4000)]


def test_nsp_at_chance_is_said_where_it_is_learnt():
    guessing = [
        (step, {**metrics, "train/nsp_accuracy": 0.5 + 0.01 * (-1) ** (step // 20)}) for step, metrics in recorded()
    ]
    assert kinds_and_steps(alarms_of(guessing, defaults())) == [("nsp_at_chance", 1600)]
    assert alarms_of(guessing, defaults(), nsp_weight=0.0) == []


def test_chance_is_what_saying_the_more_frequent_label_gives():
    guessing = [(step, {**metrics, "train/nsp_accuracy": 0.8}) for step, metrics in recorded()]
    assert alarms_of(guessing, defaults(), nsp_chance=0.7) == []
    (alarm,) = alarms_of(guessing, defaults(), nsp_chance=0.8)
    assert alarm.kind == "nsp_at_chance"
    assert "0.800 (chance: 0.800)" in alarm.message


def test_a_spike_is_a_row_far_above_the_median_and_over_when_the_loss_is_back():
    calm = [row(4.0 + 0.1 * (-1) ** index) for index in range(10)]
    alarms = alarms_of(rows_of(*calm, row(5.0), row(5.5), row(7.0), *calm, row(6.0)), SMALL)
    assert kinds_and_steps(alarms) == [("spike", 620 + 20 * 11), ("spike", 620 + 20 * 23)]


def test_nothing_is_compared_across_a_change_of_length():
    rows = rows_of(*[row(3.0)] * 10, *[row(5.0)] * 10, first=420)
    assert rows[9][0] == PHASES[0].steps
    assert alarms_of(rows, SMALL) == []


@pytest.mark.parametrize(
    ("norm", "kind"), [(1e-5, "gradients_vanish"), (0.0, "gradients_vanish"), (1e3, "gradients_explode")]
)
def test_gradients_far_from_any_use_are_said_at_once(norm, kind):
    assert kinds_and_steps(alarms_of(rows_of(row(), row(optim__grad_norm=norm)), SMALL)) == [(kind, 640)]


def test_waiting_for_data_is_said_when_it_lasts():
    waiting, busy = row(perf__data_wait_fraction=0.4), row()
    assert alarms_of(rows_of(waiting, *[busy] * 20), SMALL) == []  # workers start
    alarms = alarms_of(rows_of(*[waiting] * 20), SMALL)
    assert kinds_and_steps(alarms) == [("data_wait", 700)]
    assert "40%" in alarms[0].message


def test_skipped_steps_are_mentioned():
    rows = rows_of(row(), row(optim__skipped_steps=2.0), row())
    assert kinds_and_steps(alarms_of(rows, SMALL)) == [("skipped_steps", 640)]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"skipped": 3.0}, "3 steps since the last row had gradients that are infinite or NaN"),
        ({"loss": math.nan}, "the loss is nan"),
        ({"loss": math.inf}, "the loss is inf"),
        ({"weight": math.nan}, "there are weights that are infinite or NaN"),
        ({"weight": math.inf}, "there are weights that are infinite or NaN"),
    ],
)
def test_what_cannot_be_trained_further_is_an_error(make_job, values, problem):
    has_checkpoint, values = "loss" in values, {"skipped": 2.0, "loss": 4.0, "weight": 1.0, **values}
    weights = [torch.ones(4), torch.tensor([[1.0, values["weight"]]])]
    job = make_job()
    if has_checkpoint:
        job.latest_folder.mkdir(parents=True)
    with pytest.raises(TrainingDivergedError, match=f"after step 40: {problem}. Lower optimizer.lr") as error:
        refuse_divergence(job, 40, {"skipped_steps": values["skipped"]}, loss=values["loss"], weights=weights)
    assert ("pretrain.start_from=" in str(error.value)) == has_checkpoint
    refuse_divergence(job, 40, {"skipped_steps": 2.0}, loss=4.0, weights=weights[:1])


def test_the_keys_that_advice_names_exist():
    config, missing = OmegaConf.load(CONF.parent / "params.yaml"), object()
    keys = re.findall(r"\b(\w+\.[a-z_.]+[a-z_])", " ".join([*ADVICE.values(), *tiny.mlm_nsp().advice.values()]))
    assert len(keys) > 15
    assert [key for key in keys if OmegaConf.select(config, key, default=missing) is missing] == []
