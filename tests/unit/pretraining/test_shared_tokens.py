"""Tokens of both segments: which they are, whatever the rows, and that an encoder learns to find them."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.examples.packing import packed_batches
from bertline.foundation.errors import ConfigError
from bertline.modeling.losses import shared_token_sums
from bertline.pretraining.data import expanded
from bertline.pretraining.plan import RowLayout
from bertline.pretraining.run import run_pretraining
from pretraining_inputs import losses_of, steps_of

IDS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def padded(pairs) -> dict[str, np.ndarray]:
    """A batch of pairs of segments, as `examples.masking` makes it, without blanks."""
    width = max(len(a) + len(b) for a, b in pairs)
    batch = {
        name: np.zeros((len(pairs), width), np.int64) for name in ("input_ids", "token_type_ids", "attention_mask")
    }
    for row, (a, b) in enumerate(pairs):
        size = len(a) + len(b)
        batch["input_ids"][row, :size] = [*a, *b]
        batch["token_type_ids"][row, len(a) : size] = 1
        batch["attention_mask"][row, :size] = 1
    batch["masked_positions"] = np.zeros((len(pairs), 1), np.int64)
    batch["masked_labels"] = np.full((len(pairs), 1), -100)
    batch["next_sentence_labels"] = np.zeros(len(pairs), np.int64)
    return batch


def logits_of(ids: torch.Tensor, *, unlike: int) -> torch.Tensor:
    """A logit that depends on the token alone."""
    return torch.where(ids % 3 == unlike, -1.5, 0.5)


@settings(max_examples=60)
@given(pairs=st.lists(st.tuples(IDS, IDS), min_size=1, max_size=5), unlike=st.integers(0, 2))
def test_each_token_is_looked_for_in_the_other_segment_of_its_own_sequence(pairs, unlike):
    expected_loss = expected_correct = expected_absent = 0.0
    for a, b in pairs:
        is_shared = torch.tensor([token in b for token in a] + [token in a for token in b])
        logits = logits_of(torch.tensor([*a, *b]), unlike=unlike)
        losses = torch.nn.functional.softplus(torch.where(is_shared, -logits, logits))
        expected_loss += float(losses.mean())
        expected_correct += float(((logits > 0) == is_shared).float().mean())
        expected_absent += 1 - float(is_shared.float().mean())
    batch = padded(pairs)
    packed = packed_batches(batch, pad_id=0, max_targets=1, rows_per_batch=None)
    for rows, sequences in ((batch, "attention_mask"), *((rows, "sequence_ids") for rows in packed)):
        ids, segments, of = (torch.from_numpy(rows[name]) for name in ("input_ids", "token_type_ids", sequences))
        loss, correct, absent = shared_token_sums(logits_of(ids, unlike=unlike), ids, segments, of)
        assert float(loss) == pytest.approx(expected_loss, rel=1e-5)
        assert float(correct) == pytest.approx(expected_correct, rel=1e-5)
        assert float(absent) == pytest.approx(expected_absent, rel=1e-5)


def test_the_last_layer_is_left_to_the_other_losses(make_shared):
    job = make_shared()
    losses = losses_of(job)
    step = steps_of(job, RowLayout(packed=True, rows=None))[1]
    losses(expanded(step["micro_batches"][0]))["shared_loss"].backward()
    layers = losses.model.bert.layers
    assert all(parameter.grad is None for parameter in layers[-1].parameters())
    assert all(bool(parameter.grad.any()) for parameter in layers[0].parameters())


def test_one_layer_cannot_learn_it(make_shared):
    one = dataclasses.replace(make_shared().model, num_hidden_layers=1)
    with pytest.raises(ConfigError, match=r"mlm_nsp_shared, which needs at least 2 layers.*num_hidden_layers is 1"):
        run_pretraining(dataclasses.replace(make_shared(), model=one))
