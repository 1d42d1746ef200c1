"""`perf/mfu`: the model's own arithmetic over what the device can do."""

import dataclasses

import pytest

from bertline.foundation.metrics_log import read_metrics
from bertline.modeling.flops import flops_per_token
from bertline.pretraining import callbacks
from bertline.pretraining.data import MaskedExamples, StepDataset
from bertline.pretraining.plan import Plan
from bertline.pretraining.row_layout import RowLayout
from bertline.pretraining.run import run_pretraining
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Ranks


@pytest.fixture
def rate(monkeypatch):
    """Sets what the device is said to multiply."""

    def say(flops: float) -> None:
        monkeypatch.setattr(callbacks, "matmul_rate_of_process", lambda device, precision: flops)

    return say


def trained_rows(job) -> list[dict[str, float]]:
    return [row.metrics for row in read_metrics(job.metrics_path) if "train/loss" in row.metrics]


@pytest.mark.parametrize("packing", ["on", "off"])
def test_it_counts_real_tokens_their_mean_length_and_the_targets_that_were_there(make_job, rate, packing):
    rate(2e9)
    job = make_job(pretrain__max_steps=20, runtime__packing=packing)
    run_pretraining(job)
    examples = {16: MaskedExamples(job.examples_folder, "train", 16)}
    layouts = {16: RowLayout(packed=False, rows=None)}
    dataset = StepDataset(Plan.of(job.pretrain), examples, layouts, ranks=Ranks(), seed=job.pretrain.seed)
    steps = [dataset[step] for step in range(20)]
    tokens, sequences, targets = (
        sum(step[name] for step in steps) for name in ("num_tokens", "num_sequences", "num_targets")
    )
    flops = flops_per_token(
        job.model,
        vocab_size=Tokenizer.load(job.tokenizer_folder).vocab_size,
        seq_len=tokens / sequences,
        target_fraction=targets / tokens,
    )
    (row,) = trained_rows(job)
    assert tokens / sequences < 16
    assert row["perf/mfu"] == pytest.approx(flops * row["perf/tokens_per_s"] / 2e9)


def test_it_is_in_every_row_and_its_median_in_the_figures(make_job, rate):
    rate(1e9)
    job = make_job(pretrain__phases=[{"steps": 60, "max_length": 16, "global_batch_size": 8}])
    figures = run_pretraining(job)
    assert figures["perf/mfu"] == sorted(row["perf/mfu"] for row in trained_rows(job))[1]


def test_steps_that_were_skipped_do_not_lengthen_the_sequences(make_job):
    config = make_job().model
    model = BertWithNoWeights(config)
    record = callbacks.RecordMetrics(None, None, None, None, None, num_steps=1)
    record._matmul_rate = 1e9
    whole = {"tokens": 1000.0, "sequences": 100.0, "targets": 150.0, "steps": 10.0, "skipped_steps": 0.0}
    half = {**whole, "sequences": 50.0, "targets": 75.0, "skipped_steps": 5.0}
    none = {**whole, "sequences": 0.0, "targets": 0.0, "skipped_steps": 10.0}
    assert record._utilisation(model, half, 2.0) == pytest.approx(record._utilisation(model, whole, 2.0))
    assert record._utilisation(model, none, 2.0) == {}


class BertWithNoWeights:
    """As much of a model as is asked for its size."""

    def __init__(self, config) -> None:
        self.bert = self
        self.config = dataclasses.replace(config)
        self.vocab_size = 60
