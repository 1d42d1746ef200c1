"""Losses as sums and counts."""

from __future__ import annotations

import pytest
import torch

from bertline.modeling.losses import (
    masked_lm_loss_sum,
    sequence_loss_sum,
    sequences_correct,
)


def test_micro_batches_add_up_to_the_whole_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 4, 11, generator=generator)
    labels = torch.randint(0, 11, (6, 4), generator=generator)
    labels[0, 1:], labels[3] = -100, -100
    whole, num_targets = masked_lm_loss_sum(logits, labels)
    parts = [masked_lm_loss_sum(logits[i : i + 2], labels[i : i + 2]) for i in (0, 2, 4)]
    assert sum(count.item() for _, count in parts) == num_targets == 17
    torch.testing.assert_close(sum(loss for loss, _ in parts), whole)
    chosen = labels >= 0
    by_hand = -logits.log_softmax(-1)[chosen][torch.arange(17), labels[chosen]].sum()
    torch.testing.assert_close(whole, by_hand)


def test_no_target_is_a_loss_of_zero_with_zero_gradients() -> None:
    logits = torch.randn(2, 3, 5, requires_grad=True)
    loss, num_targets = masked_lm_loss_sum(logits, torch.full((2, 3), -100))
    loss.backward()
    assert (loss.item(), num_targets.item()) == (0, 0)
    assert (logits.grad == 0).all()


def test_losses_of_bf16_logits_are_computed_in_fp32() -> None:
    logits = torch.randn(4, 2, 300, generator=torch.Generator().manual_seed(0)).bfloat16()
    labels = torch.arange(8).view(4, 2)
    loss, _ = masked_lm_loss_sum(logits, labels)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, masked_lm_loss_sum(logits.double().float(), labels)[0])


def test_next_sentence_sums() -> None:
    logits, labels = torch.tensor([[0.0, 0.0], [3.0, -3.0], [-3.0, 3.0]]), torch.tensor([1, 0, 0])
    loss = sequence_loss_sum(logits, labels)
    assert loss.item() == pytest.approx(0.6931 + 0.0025 + 6.0025, abs=1e-3)
    assert sequences_correct(logits[1:], labels[1:]).item() == 1
