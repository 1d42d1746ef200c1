"""Training the read rows of the word embeddings alone ends in the weights of training all of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tiny
from bertline.encoding.sequences import Epochs
from bertline.finetuning import embedding_rows
from bertline.finetuning.embedding_rows import rows_to_train
from bertline.finetuning.parameter_groups import fine_tuning_optimizer
from bertline.modeling.bert import BertModel
from finetuning_inputs import fine_tuning
from killed_runs import ended, job_of_kind


@pytest.fixture
def at_any_size(monkeypatch):
    monkeypatch.setattr(embedding_rows, "_LEAST_WEIGHTS", 0)
    monkeypatch.setattr(embedding_rows, "_LEAST_SHARE", 0)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("windows", {"batch_size": 1, "layer_decay": 0.5}),
        ("retrieval", {"batch_size": 1, "num_epochs": 4, "max_grad_norm": 0.05}),
        ("reranking", {"taught": True, "num_epochs": 2, "early_stopping_epochs": None}),
    ],
)
def test_weights_and_scores_are_those_of_training_all_rows(tmp_path, request, name, changes):
    job = job_of_kind(tmp_path, name, weight_decay=0.5, **changes)
    (weights, checks, *_), num_steps = ended(job)
    request.getfixturevalue("at_any_size")
    (of_rows, checks_of_rows, *_), _ = ended(job)
    assert num_steps >= 20
    torch.testing.assert_close(of_rows, weights, atol=1e-6, rtol=0)
    for check, other in zip(checks_of_rows, checks, strict=True):
        assert check.scores == pytest.approx(other.scores, abs=1e-5)
    (table,) = (each for each in of_rows if each.endswith("word_embeddings.weight"))
    start = job.kind.load_model(tmp_path / "best").state_dict()[table]
    mask = tiny.SPECIAL.index("[MASK]")  # no text has it
    assert (of_rows[table][mask] - start[mask]).abs().max() > 1e-5


def test_a_killed_run_ends_in_the_same_bits(assert_resumes, at_any_size):
    assert_resumes("retrieval", taught=True, weight_decay=0.5)


class Model(nn.Module):
    def __init__(self, vocab_size=100, **changes):
        super().__init__()
        self.bert = BertModel(tiny.model_config(**changes), vocab_size=vocab_size, pad_token_id=3)


def epochs(*batches):
    """One batch in each epoch."""
    return Epochs(1, 1, lambda epoch: iter([batches[epoch]]))


def test_rows_that_any_epoch_reads_are_trained_and_no_others(at_any_size):
    model, first, second = Model(), torch.tensor([[7, 50, 3]]), torch.tensor([[99, 7, 3]])
    whole = model.bert.word_embeddings.detach().clone()
    batches = epochs({"query_input_ids": first, "labels": torch.tensor([8])}, {"document_input_ids": second})
    rows = rows_to_train(model, batches, 2)
    assert torch.equal(model.bert.word_embeddings, whole[[3, 7, 50, 99]])
    optimizer = fine_tuning_optimizer(model, fine_tuning())
    model.bert(second, torch.zeros_like(second)).pooled.sum().backward()
    optimizer.step()
    assert optimizer.state[model.bert.word_embeddings]["exp_avg"].shape == (4, whole.shape[1])
    with pytest.raises(IndexError):
        model.bert(torch.tensor([[8]]), torch.zeros(1, 1, dtype=torch.long))
    rows.restore([], model, fine_tuning())
    changed = (model.bert.word_embeddings != whole).any(dim=1).nonzero().flatten()
    assert changed.tolist() == [7, 50, 99]  # 50 by its weight decay; 3 is the padding
    assert model.bert.embeddings.word_embeddings.padding_idx == 3
    assert not model.bert.embeddings.word_embeddings._forward_pre_hooks


def tied(model):
    model.decoder = nn.Linear(*reversed(model.bert.word_embeddings.shape))
    model.decoder.weight = model.bert.word_embeddings


LARGE = {"hidden_size": 2, "num_attention_heads": 1, "vocab_size": 2**21}


@pytest.mark.parametrize(
    ("sizes", "change", "is_left"),
    [
        (LARGE, None, False),
        (LARGE, lambda model: model.bert.embeddings.requires_grad_(False), True),
        (LARGE, tied, True),
        (LARGE, lambda model: model.to("meta"), True),  # as on any device but the CPU
        ({**LARGE, "vocab_size": 2**20}, None, True),
        ({"hidden_size": 128, "vocab_size": 8192}, None, True),  # the encoder of the default run
        ({**LARGE, "intermediate_size": 2**21}, None, True),  # less than half of the weights
    ],
)
def test_a_small_frozen_or_shared_table_is_left_as_it_is(sizes, change, is_left):
    model = Model(**sizes)
    if change is not None:
        change(model)
    table = model.bert.word_embeddings
    rows = rows_to_train(model, epochs({"input_ids": torch.tensor([[7]])}), 1)
    assert (rows is None) == (model.bert.word_embeddings is table) == is_left
