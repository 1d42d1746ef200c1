"""Model and losses are one graph for the compiler: a break would cost speed and say nothing."""

import pytest
import torch

import tiny
from bertline.modeling.dropout import mask_keys
from bertline.modeling.initialization import initialize
from bertline.pretraining.data import MaskedExamples, compacted, expanded
from bertline.pretraining.module import PreTrainingLosses
from bertline.pretraining.row_layout import RowLayout


@pytest.fixture(params=[tiny.mlm_nsp, tiny.mlm], ids=["mlm_nsp", "mlm"])
def losses(make_job, request) -> PreTrainingLosses:
    job, objective = make_job(), request.param()
    vocab_size = MaskedExamples(job.examples_folder, "train", 16).store.manifest["vocab_size"]
    model = objective.model_class()(job.model, vocab_size=vocab_size, pad_token_id=0, attention="plain")
    initialize(model, job.model, seed=1)
    assert job.model.hidden_dropout_prob == job.model.attention_probs_dropout_prob == 0.1
    return PreTrainingLosses(model, objective)


@pytest.mark.parametrize("mode", ["training", "evaluation"])
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_one_graph_gives_the_same_losses_and_gradients(make_job, losses, packed, mode):
    torch._dynamo.reset()
    examples = MaskedExamples(make_job().examples_folder, "train", 16)
    batch = examples.batch(torch.arange(8).numpy(), epoch=0)
    batch["sequence_places"] = torch.arange(8).numpy()
    (arrays,) = examples.micro_batches(batch, RowLayout(packed=packed, rows=8 if packed else None))
    assert ("boundaries" in arrays) == packed
    micro_batch = expanded(compacted(arrays), mask_keys(5, num_sites=7))
    assert "dropout_tokens" in micro_batch
    losses.train(mode == "training")
    results = []
    for module in (losses, torch.compile(losses, fullgraph=True, dynamic=False, backend="eager")):
        losses.zero_grad()
        sums = module(micro_batch)
        sum(sums[term.name] for term in losses.objective.terms).backward()
        gradients = {name: weight.grad.clone() for name, weight in losses.named_parameters()}
        results.append((sums, gradients))
    for expected, found in zip(*results, strict=True):
        assert expected.keys() == found.keys()
        for name in expected:
            torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-6, msg=name)
