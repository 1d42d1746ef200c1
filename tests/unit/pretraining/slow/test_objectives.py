"""A training by each objective: it learns, it resumes to the same bits, and its losses are one graph."""

import math

import pytest
import torch

import pretraining_inputs
from bertline.modeling.checkpoint import Checkpoint
from bertline.modeling.dropout import mask_keys
from bertline.pretraining.data import expanded
from bertline.pretraining.plan import RowLayout
from bertline.pretraining.probes import MaskPredictionProbe, ValidationProbe
from bertline.pretraining.run import run_pretraining
from pretraining_inputs import NO_DROPOUT

TWO_LENGTHS = [
    {"steps": 40, "max_length": 16, "global_batch_size": 8},
    {"steps": 10, "max_length": 24, "global_batch_size": 4},
]


@pytest.mark.parametrize("packing", ["on", "off"])
@pytest.mark.parametrize(
    ("maker", "probe", "step"),
    [
        ("make_mlm", MaskPredictionProbe, 45),
        ("make_contrastive", ValidationProbe, 30),
        ("make_shared", ValidationProbe, 30),
    ],
)
def test_it_resumes_to_the_same_bits(request, monkeypatch, maker, probe, step, packing):
    changes = {"runtime__packing": packing, "pretrain__phases": TWO_LENGTHS}
    alone, stopped = (request.getfixturevalue(maker)(name, **changes) for name in ("alone", "stopped"))
    figures = pretraining_inputs.assert_resumes_to_the_same_bits(alone, stopped, probe, step, monkeypatch)
    assert 0 < figures.get("val/shared_accuracy", 0.5) <= 1


STABLE = {"kind": "wsd", "num_warmup_steps": 5, "num_decay_steps": 10, "final_fraction": 0.1, "decay": "1-sqrt"}


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_optimizer_and_schedule_resumes_to_the_same_bits(make_job, monkeypatch, kind, precision):
    changes = {
        "optimizer": pretraining_inputs.OPTIMIZERS[kind], "schedule": STABLE, "pretrain__precision": precision
    }  # fmt: skip
    alone, stopped = make_job("alone", **changes), make_job("stopped", **changes)
    pretraining_inputs.assert_resumes_to_the_same_bits(alone, stopped, MaskPredictionProbe, 15, monkeypatch)
    states = [pretraining_inputs.newest_state(job)["optimizer"] for job in (alone, stopped)]
    pretraining_inputs.assert_same_weights(*states)


@pytest.mark.parametrize("mode", ["training", "evaluation"])
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("maker", ["make_mlm", "make_job", "make_contrastive", "make_shared"])
def test_one_graph_gives_the_same_sums_and_gradients(request, maker, packed, mode):
    """A break in the graph would cost speed and say nothing; dropout is in it."""
    torch._dynamo.reset()
    job = request.getfixturevalue(maker)()
    assert job.model.hidden_dropout_prob == job.model.attention_probs_dropout_prob == 0.1
    step = pretraining_inputs.steps_of(job, RowLayout(packed=packed, rows=None))[0]
    batch = expanded(step["micro_batches"][0], mask_keys(5, num_sites=7))
    assert ("boundaries" in batch) == packed and "dropout_tokens" in batch
    losses = pretraining_inputs.losses_of(job).train(mode == "training")
    results = []
    for module in (losses, torch.compile(losses, fullgraph=True, dynamic=False, backend="aot_eager")):
        losses.zero_grad()
        sums = module(batch)
        sum(sums[term.name] for term in job.objective.terms).backward()
        gradients = {f"gradient of {name}": weight.grad.clone() for name, weight in losses.named_parameters()}
        results.append({**{name: value.detach() for name, value in sums.items()}, **gradients})
    expected, found = results
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_contrastive_learns_to_find_the_other_segment(pretraining, make_contrastive):
    phases = [{"steps": 200, "max_length": 24, "global_batch_size": 8}]
    job = make_contrastive(pretrain__phases=phases, **NO_DROPOUT)
    figures = run_pretraining(job)
    rows = [metrics for _, metrics in pretraining.curve(job) if "train/loss" in metrics]
    assert rows[-1]["train/contrastive_loss"] < math.log(4) - 0.3
    assert rows[-1]["train/contrastive_accuracy"] > 0.4
    weighted = rows[-1]["train/contrastive_loss"] + 0.5 * rows[-1]["train/mlm_loss"]
    assert rows[-1]["train/loss"] == pytest.approx(weighted, rel=1e-6)
    assert {"val/contrastive_loss", "val/contrastive_accuracy", "val/mlm_loss"} <= figures.keys()
    assert Checkpoint.open(job.result_folder).architecture == "BertForMaskedLM"
