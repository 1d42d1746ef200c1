"""Utilisation, which is the model's own arithmetic over what the device can do, and the time that is left."""

import math

import pytest

from bertline.foundation.metrics_log import read_metrics
from bertline.modeling.flops import flops_per_token
from bertline.pretraining import callbacks
from bertline.pretraining.callbacks import TimeLeft, work_of_sequences
from bertline.pretraining.config import PhaseConfig
from bertline.pretraining.data import MaskedExamples
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.plan import Plan, RowLayout
from bertline.pretraining.run import run_pretraining
from bertline.pretraining.start import build_model
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import resolve_machine
from bertline.training.progress import Seconds
from pretraining_inputs import steps_of


@pytest.fixture
def rate(monkeypatch):
    """Sets what the device is said to multiply."""

    def say(flops: float) -> None:
        monkeypatch.setattr(callbacks, "peak_rate", lambda device, precision: flops)

    return say


def trained_rows(job) -> list[dict[str, float]]:
    return [row.metrics for row in read_metrics(job.metrics_path) if "train/loss" in row.metrics]


@pytest.mark.parametrize("packing", ["on", "off"])
@pytest.mark.parametrize("num_short_steps", [20, 12])
def test_it_adds_up_what_each_sequence_takes_also_where_a_row_has_two_lengths(make_job, rate, packing, num_short_steps):
    rate(2e9)
    phases = [
        {"steps": num_short_steps, "max_length": 16, "global_batch_size": 8},
        {"steps": 8, "max_length": 24, "global_batch_size": 5},
    ]
    job = make_job(pretrain__phases=phases, pretrain__max_steps=20, runtime__packing=packing)
    run_pretraining(job)
    dataset = steps_of(job, RowLayout(packed=False, rows=None))
    vocab_size = Tokenizer.load(job.tokenizer_folder).vocab_size
    num_tokens, flops = 0, 0.0
    for step in range(20):
        (batch,) = dataset[step]["micro_batches"]
        num_tokens += dataset[step]["num_tokens"]
        for length, labels in zip(batch["attention_mask"].sum(dim=1).tolist(), batch["masked_labels"], strict=True):
            targets = int((labels != -100).sum())
            flops += length * flops_per_token(
                job.model, vocab_size=vocab_size, seq_len=length, target_fraction=targets / length
            )
    (row,) = trained_rows(job)
    # With several lengths, the mean one gives the number of positions at which the last layer is read.
    assert row["perf/mfu"] == pytest.approx(flops / num_tokens * row["perf/tokens_per_s"] / 2e9, rel=0.005)


def test_it_is_in_every_row_and_its_median_in_the_figures(make_job, rate):
    rate(1e9)
    job = make_job(pretrain__phases=[{"steps": 60, "max_length": 16, "global_batch_size": 8}])
    figures = run_pretraining(job)
    assert figures["perf/mfu"] == sorted(row["perf/mfu"] for row in trained_rows(job))[1]


def test_steps_that_are_skipped_are_computed_all_the_same(make_job, rate, monkeypatch):
    rate(2e9)
    well, ill = make_job("well", pretrain__max_steps=20), make_job("ill", pretrain__max_steps=20)
    run_pretraining(well)
    clip = PretrainingModule._clip
    monkeypatch.setattr(
        PretrainingModule, "_clip", lambda module: clip(module) * (math.nan if module.finished_steps == 7 else 1)
    )
    run_pretraining(ill)
    per_token = [row["perf/mfu"] / row["perf/tokens_per_s"] for job in (well, ill) for row in trained_rows(job)]
    assert [row["optim/skipped_steps"] for row in trained_rows(ill)] == [1.0]
    assert per_token[0] == pytest.approx(per_token[1])


# A step of the second phase is ten times the work of one of the first.
PHASES = [
    PhaseConfig(steps=600, max_length=128, global_batch_size=8),
    PhaseConfig(steps=400, max_length=512, global_batch_size=4),
]
WORK = {128: 1.0, 512: 20.0}
PAUSED_BEFORE_S = 7.0


def left_after(steps: int, *, compile_s: float = 60.0, first_step: int = 0, then: dict[int, float] | None = None):
    """The seconds left after these steps, whose time is their work but for the first one, which compiles.

    `then` has the seconds of steps that take another time.
    """
    left, trained_s = TimeLeft(Plan(PHASES, num_steps=1000), WORK), compile_s
    for step in range(first_step + 1, steps + 1):
        trained_s += (then or {}).get(step, 0.5 if step <= 600 else 5.0)
        found = left.after(step, Seconds(trained_s=trained_s, paused_s=PAUSED_BEFORE_S))
    return found


@pytest.mark.parametrize("step", [2, 50, 599])
def test_a_dearer_phase_to_come_counts_by_its_work(step):
    assert left_after(step) == pytest.approx((600 - step) * 0.5 + 400 * 5.0)


def test_a_start_in_the_second_phase_knows_that_it_is_in_it():
    assert left_after(710, first_step=700) == pytest.approx(290 * 5.0)


def test_the_pace_is_that_of_the_newest_steps():
    slow = dict.fromkeys(range(101, 302), 2.0)
    assert left_after(301, then=slow) == pytest.approx(299 * 2.0 + 400 * 20.0)


def test_the_first_step_of_a_length_which_compiles_does_not_distort_the_pace():
    assert left_after(602, then={601: 10_000.0}) == pytest.approx(398 * 5.0)


def test_pauses_go_on_coming_as_often_but_for_those_before_the_first_step():
    left = TimeLeft(Plan(PHASES, num_steps=1000), WORK)
    for step in range(101, 201):
        paused_s = PAUSED_BEFORE_S + (20.0 if step > 150 else 0.0)
        found = left.after(step, Seconds(trained_s=step / 2, paused_s=paused_s))
    assert found == pytest.approx(400 * 0.5 + 400 * 5.0 + 20.0 * 8)


def test_it_is_not_known_after_a_first_step_and_nothing_after_the_last():
    assert left_after(1) is None
    assert left_after(1000) == 0.0


def test_the_work_of_a_sequence_has_its_padding_unless_rows_are_packed(make_job):
    job = make_job()
    machine = resolve_machine(job.runtime, job.pretrain.precision)
    tokenizer = Tokenizer.load(job.tokenizer_folder)
    model = build_model(job, tokenizer, machine)
    examples = {length: MaskedExamples(job.examples_folder, "train", length) for length in (16, 24)}
    layouts = {16: RowLayout(packed=True, rows=None), 24: RowLayout(packed=False, rows=None)}
    found = work_of_sequences(model, examples, layouts)
    store = examples[16].store
    mean_length = sum(len(store[index].input_ids) for index in range(len(store))) / len(store)
    for length, positions, targets in ((16, mean_length, 2), (24, 24, 4)):
        flops = flops_per_token(
            job.model, vocab_size=tokenizer.vocab_size, seq_len=positions, target_fraction=targets / length
        )
        assert found[length] == pytest.approx(positions * flops)
