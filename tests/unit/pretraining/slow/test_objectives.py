"""A training by each objective: it learns, it resumes to the same bits, and its losses are one graph."""

import math

import numpy as np
import pytest
import torch

import pretraining_inputs
import tiny
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.huggingface import architecture_of
from bertline.modeling.initialization import initialize
from bertline.modeling.weight_files import read_weight_names
from bertline.pretraining.data import MaskedExamples, StepDataset, expanded
from bertline.pretraining.module import PreTrainingLosses
from bertline.pretraining.plan import Plan
from bertline.pretraining.probes import BestStep, MaskPredictionProbe
from bertline.pretraining.row_layout import RowLayout
from bertline.pretraining.run import run_pretraining
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Ranks
from tiny import load_pretraining_model

NO_DROPOUT = {"model__hidden_dropout_prob": 0.0, "model__attention_probs_dropout_prob": 0.0}
TWO_LENGTHS = [
    {"steps": 40, "max_length": 16, "global_batch_size": 8},
    {"steps": 10, "max_length": 24, "global_batch_size": 4},
]


@pytest.mark.parametrize("packing", ["on", "off"])
@pytest.mark.parametrize(
    ("maker", "probe", "step"),
    [("make_mlm", MaskPredictionProbe, 45), ("make_contrastive", BestStep, 30), ("make_shared", BestStep, 30)],
)
def test_it_resumes_to_the_same_bits(request, monkeypatch, maker, probe, step, packing):
    changes = {"runtime__packing": packing, "pretrain__phases": TWO_LENGTHS}
    alone, stopped = (request.getfixturevalue(maker)(name, **changes) for name in ("alone", "stopped"))
    figures = pretraining_inputs.assert_resumes_to_the_same_bits(alone, stopped, probe, step, monkeypatch)
    assert 0 < figures.get("val/shared_accuracy", 0.5) <= 1


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize(
    ("maker", "length", "loss"), [("make_contrastive", 24, "contrastive_loss"), ("make_shared", 16, "shared_loss")]
)
def test_one_graph_gives_the_same_sums_and_gradients(request, maker, length, loss, packed):
    job = request.getfixturevalue(maker)()
    examples = {
        length: MaskedExamples(job.examples_folder, "train", length, pairs_together=job.objective.pairs_together)
    }
    layouts = {length: RowLayout(packed=packed, rows=None)}
    step = StepDataset(Plan.of(job.pretrain), examples, layouts, ranks=Ranks(), seed=0)[0]
    batch = expanded(step["micro_batches"][0])
    tokenizer = Tokenizer.load(job.tokenizer_folder)
    model = job.objective.model_class()(job.model, vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_id)
    initialize(model, job.model, seed=1)
    losses = PreTrainingLosses(model.eval(), job.objective)
    expected = losses(batch)
    wanted = torch.autograd.grad(expected[loss], model.bert.layers[0].query_key_value.weight)[0]
    found = torch.compile(losses, fullgraph=True, backend="aot_eager")(batch)
    gradient = torch.autograd.grad(found[loss], model.bert.layers[0].query_key_value.weight)[0]
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5, msg=name)
    torch.testing.assert_close(gradient, wanted, rtol=1e-3, atol=1e-6)


def test_mlm_lowers_the_loss(pretraining, make_mlm):
    phases = [{"steps": 100, "max_length": 16, "global_batch_size": 16}]
    job = make_mlm(pretrain__phases=phases, **NO_DROPOUT)
    run_pretraining(job)
    rows = [metrics for _, metrics in pretraining.curve(job) if "train/loss" in metrics]
    assert rows[-1]["train/mlm_loss"] < rows[0]["train/mlm_loss"] - 0.2
    assert all(row["train/loss"] == row["train/mlm_loss"] for row in rows)


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
    assert architecture_of(job.result_folder) == "BertForMaskedLM"


def test_an_encoder_learns_which_tokens_are_shared():
    torch.manual_seed(0)
    sizes = tiny.model_config(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = BertForPreTraining(sizes, vocab_size=30, pad_token_id=0)
    initialize(model, sizes, seed=0)
    losses = PreTrainingLosses(model, tiny.mlm_nsp_shared())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    segments = torch.arange(12).ge(6).long().expand(64, -1)
    rest = {"masked_positions": torch.zeros(64, 1, dtype=torch.long), "masked_labels": torch.full((64, 1), -100)}
    accuracies, without_looking = [], []
    for _ in range(400):
        ids = torch.randint(1, 30, (64, 12))
        batch = {"input_ids": ids, "token_type_ids": segments, "next_sentence_labels": torch.zeros(64).long(), **rest}
        sums = losses(batch)
        (sums["shared_loss"] / 64).backward()
        optimizer.step()
        optimizer.zero_grad()
        accuracies.append(float(sums["shared_correct"]) / 64)
        without_looking.append(float(sums["unshared"]) / 64)
    assert 0.7 < np.mean(without_looking) < 0.9
    assert np.mean(accuracies[-50:]) > np.mean(without_looking) + 0.1


def test_shared_tokens_weigh_in_by_their_weight_and_add_no_weights(pretraining, make_job, make_shared):
    nsp, ignored = {"kind": "mlm_nsp", "nsp_weight": 0.5}, {**pretraining_inputs.SHARED, "shared_weight": 0.0}
    without = make_job("without", objective=nsp, pretrain__phases=TWO_LENGTHS)
    ignored = make_shared("ignored", objective=ignored, pretrain__phases=TWO_LENGTHS)
    with_it = make_shared("with", pretrain__phases=TWO_LENGTHS)
    for job in (without, ignored, with_it):
        run_pretraining(job)
    weights = [load_pretraining_model(job.result_folder).state_dict() for job in (without, ignored, with_it)]
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=1e-4, atol=1e-5, msg=name)
    name = "bert.layers.0.query_key_value.weight"
    assert float((weights[2][name] - weights[0][name]).abs().max()) > 1e-3
    assert read_weight_names(with_it.result_folder) == read_weight_names(without.result_folder)
    for row in (metrics for _, metrics in pretraining.curve(with_it) if "train/loss" in metrics):
        weighted = row["train/mlm_loss"] + 0.5 * row["train/nsp_loss"] + 0.2 * row["train/shared_loss"]
        assert row["train/loss"] == pytest.approx(weighted, rel=1e-6)
