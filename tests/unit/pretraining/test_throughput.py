"""Utilisation, which is the model's own arithmetic over what the device can do, and the time that is left."""

import pytest

from bertline.foundation.metrics_log import read_metrics
from bertline.modeling.config import flops_per_token
from bertline.pretraining import callbacks
from bertline.pretraining.callbacks import TimeLeft
from bertline.pretraining.config import PhaseConfig
from bertline.pretraining.plan import Plan, RowLayout
from bertline.pretraining.run import run_pretraining
from bertline.tokenization.tokenizer import Tokenizer
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


def test_a_dearer_phase_to_come_counts_by_its_tokens_and_the_first_step_and_earlier_pauses_do_not_count():
    phases = [
        PhaseConfig(steps=600, max_length=128, global_batch_size=8),
        PhaseConfig(steps=400, max_length=512, global_batch_size=20),
    ]
    left = TimeLeft(Plan(phases, num_steps=1000))  # ten times the tokens a step
    compiled_s, found = 60.0, {}
    for step in range(1, 1001):
        trained_s = compiled_s + 0.5 * min(step, 600) + 5.0 * max(0, step - 600)
        found[step] = left.after(step, Seconds(trained_s=trained_s, paused_s=7.0))
    assert (found[1], found[1000]) == (None, 0.0)
    for step in (2, 50, 599, 700):
        assert found[step] == pytest.approx(max(0, 600 - step) * 0.5 + min(400, 1000 - step) * 5.0)
