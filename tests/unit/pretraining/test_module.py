"""Promise 3: the loss is the mean over the targets of the global batch; and the sums between two rows of metrics."""

import math

import pytest
import torch

import tiny
from bertline.foundation.metrics_log import read_metrics
from bertline.pretraining import module as module_file
from bertline.pretraining.health import IntervalSums, training_metrics
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.objectives.base import sum_names
from bertline.pretraining.run import run_pretraining
from pretraining_inputs import NO_DROPOUT, gradients_of_the_whole_batch


@pytest.mark.parametrize(
    "layout",
    [
        {"packing": "off"},
        {"packing": "off", "micro_batch_size": 3},
        {"packing": "off", "micro_batch_tokens": 16},
        {"packing": "on"},
        {"packing": "on", "micro_batch_tokens": 50},
        {"packing": "on", "micro_batch_size": 1, "attention": "sdpa"},
    ],
    ids=lambda layout: "-".join(str(value) for value in layout.values()),
)
def test_gradients_are_those_of_the_mean_over_the_global_batch(make_job, monkeypatch, layout):
    found = {}
    clip = PretrainingModule._clip

    def recording(module):
        found.update({name: parameter.grad.clone() for name, parameter in module.model.named_parameters()})
        return clip(module)

    monkeypatch.setattr(PretrainingModule, "_clip", recording)
    phases = [{"steps": 1, "max_length": 16, "global_batch_size": 8}]
    job = make_job(
        pretrain__phases=phases,
        schedule__num_warmup_steps=0,
        objective__nsp_weight=0.5,
        **{f"runtime__{name}": value for name, value in layout.items()},
        **NO_DROPOUT,
    )
    run_pretraining(job)
    expected = gradients_of_the_whole_batch(job)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("several_ranks", [False, True])
def test_a_step_without_a_target_learns_from_the_next_sentences_alone(make_job, monkeypatch, several_ranks):
    if several_ranks:  # the count is then a tensor, which is not read
        monkeypatch.setattr(module_file, "start_sum", lambda value, device: lambda: torch.tensor(float(value)))
    moved = {}
    take = PretrainingModule.training_step

    def without_targets(module, batch, batch_idx):
        if module.finished_steps == 2:
            batch["num_targets"] = 0
            for micro_batch in batch["micro_batches"]:
                micro_batch["masked_labels"].fill_(-100)
        before = {name: weight.detach().clone() for name, weight in module.model.named_parameters()}
        take(module, batch, batch_idx)
        if module.finished_steps == 3:
            moved.update({name: weight.grad.any() for name, weight in module.model.named_parameters()})
            assert not torch.equal(module.model.nsp_head.weight, before["nsp_head.weight"])

    monkeypatch.setattr(PretrainingModule, "training_step", without_targets)
    job = make_job(pretrain__max_steps=6)
    run_pretraining(job)
    assert moved["nsp_head.weight"] and moved["bert.layers.0.intermediate.weight"]
    assert not moved["mlm_head.bias"] and not moved["mlm_head.transform.weight"]
    rows = [row.metrics for row in read_metrics(job.metrics_path) if "train/loss" in row.metrics]
    assert [row["optim/skipped_steps"] for row in rows] == [0.0]


SIX_STEPS = {
    "pretrain__phases": [{"steps": 6, "max_length": 16, "global_batch_size": 16}],
    "pretrain__validate_every_steps": 6,
    "pretrain__mask_predictions": {"every_steps": 6, "num_guesses": 1, "sentences": []},
}


@pytest.fixture(scope="module")
def after_six_steps(pretraining, inputs, tmp_path_factory):
    """The weights after six steps with dropout 0.1, each step computed at once, in padded rows."""
    return weights_of(pretraining, inputs, tmp_path_factory.mktemp("whole"), {"packing": "off"})


def weights_of(pretraining, inputs, folder, runtime, **changes) -> dict[str, torch.Tensor]:
    changes = {**SIX_STEPS, **{f"runtime__{name}": value for name, value in runtime.items()}, **changes}
    job = pretraining.pretrain_job(inputs, folder / "run", **changes)
    run_pretraining(job)
    return pretraining.newest_state(job)["model"]


def furthest(found, expected) -> float:
    assert found.keys() == expected.keys()
    return max((found[name] - expected[name]).abs().max().item() for name in expected)


@pytest.mark.parametrize(
    "runtime",
    [
        {"packing": "off", "micro_batch_size": 4},
        {"packing": "off", "micro_batch_tokens": 80},
        {"packing": "off", "attention": "eager"},
        {"packing": "on"},
        {"packing": "on", "micro_batch_size": 3},
        {"packing": "on", "micro_batch_tokens": 64, "attention": "eager"},
    ],
    ids=lambda runtime: "-".join(str(value) for value in runtime.values()),
)
def test_with_dropout_the_layout_of_the_rows_changes_the_weights_by_rounding_alone(
    pretraining, inputs, tmp_path, after_six_steps, runtime
):
    assert furthest(weights_of(pretraining, inputs, tmp_path, runtime), after_six_steps) < 1e-6


CPU = torch.device("cpu")
NAMES = sum_names(tiny.mlm_nsp())


def sums(*values: float) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value) for name, value in zip(NAMES, values, strict=True)}


def counts(**numbers: int) -> dict[str, int]:
    """What of a batch is counted."""
    return {f"num_{name}": number for name, number in numbers.items()}


def take_step(interval: IntervalSums, *values: float, grad_norm: float = 1.5) -> None:
    interval.add_micro_batch(sums(*values))
    interval.add_step(torch.tensor(grad_norm), counts(targets=4, sequences=2, tokens=30, pairs=450))


def filled() -> IntervalSums:
    interval = IntervalSums(CPU, NAMES)
    interval.add_micro_batch(sums(10.0, 1.0, 2.0, 3.0))
    interval.add_micro_batch(sums(20.0, 2.0, 0.0, 1.0))
    interval.add_step(torch.tensor(4.0), counts(targets=15, sequences=6, tokens=90, pairs=1400))
    return interval


def test_metrics_are_means_over_targets_and_sequences():
    metrics = training_metrics(filled().total(), tiny.mlm_nsp(nsp_weight=2.0))
    assert metrics == pytest.approx({
        "train/mlm_loss": 2.0, "train/nsp_loss": 0.5, "train/loss": 3.0, "train/mlm_accuracy": 2 / 15,
        "train/nsp_accuracy": 4 / 6, "optim/grad_norm": 4.0, "optim/skipped_steps": 0.0,
    })  # fmt: skip


@pytest.mark.parametrize("grad_norm", [math.nan, math.inf])
def test_a_step_that_the_optimizer_skips_is_counted_and_left_out(grad_norm):
    interval = filled()
    take_step(interval, math.nan, 7.0, 1.0, 1.0, grad_norm=grad_norm)
    take_step(interval, math.inf, math.nan, 1.0, 1.0, grad_norm=grad_norm)
    total = interval.total()
    assert (total["steps"], total["skipped_steps"], total["tokens"]) == (3.0, 2.0, 90.0)
    assert (total["timed_tokens"], total["timed_targets"], total["timed_pairs"]) == (150.0, 23.0, 2300.0)
    skipping = training_metrics(total, tiny.mlm_nsp(nsp_weight=2.0))
    assert skipping.pop("optim/skipped_steps") == 2.0
    without = training_metrics(filled().total(), tiny.mlm_nsp(nsp_weight=2.0))
    assert skipping == {key: without[key] for key in skipping}
