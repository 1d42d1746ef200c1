"""Pretraining losses as sums and counts, so that the caller can take the mean over the global batch.

A mean per micro-batch would give targets in micro-batches with few targets a larger weight.
Shapes: B sequences, P masked positions, V vocabulary size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from bertline.foundation.labels import IGNORED_LABEL


def masked_lm_loss_sum(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy of the masked language model, summed over the targets.

    Args:
        logits: [..., P, V], any floating-point dtype; the loss is computed in fp32.
        labels: [..., P] token ids, -100 in unused positions.

    Returns:
        Sum of the losses in nats (fp32 scalar, 0 without targets) and number of targets (int64 scalar).

    Example:
        >>> loss, targets = masked_lm_loss_sum(torch.zeros(1, 2, 8), torch.tensor([[3, -100]]))
        >>> f"{loss.item():.4f} nats over {targets.item()} target"  # a uniform guess among 8 costs ln 8
        '2.0794 nats over 1 target'

    References:
        Devlin et al., BERT (arXiv 1810.04805), section 3.1, task 1.
    """
    loss = F.cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), ignore_index=IGNORED_LABEL, reduction="sum")
    return loss, (labels != IGNORED_LABEL).sum()


def masked_lm_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the number of targets [..., P] whose highest logit [..., P, V] is that of the true token (int64 scalar).

    Ties go to the first token, as with `argmax`. The index is computed from the maximum, which the loss computes too,
    so the compiler fuses the work into the loops of the loss; it cannot do that with `argmax`.

    >>> masked_lm_correct(torch.tensor([[[0.1, 0.9], [0.8, 0.2]]]), torch.tensor([[1, -100]])).item()
    1
    """
    scores = logits.flatten(0, -2).float()
    places = torch.arange(scores.shape[-1], dtype=torch.int32, device=scores.device)
    is_highest = scores == scores.amax(-1, keepdim=True)
    first = torch.where(is_highest, places, scores.shape[-1]).amin(-1)
    return (first == labels.flatten()).sum()


def sequence_loss_sum(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of one label per sequence, summed over the sequences.

    Args:
        logits: [B, number of labels].
        labels: [B], -100 in unused entries.

    Returns:
        Sum of the losses in nats (fp32 scalar).

    References:
        Devlin et al., BERT (arXiv 1810.04805), section 3.1, task 2.
    """
    return F.cross_entropy(logits.float(), labels, ignore_index=IGNORED_LABEL, reduction="sum")


def sequences_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the number of sequences whose highest logit [B, labels] is that of the label (int64 scalar)."""
    return (logits.argmax(-1) == labels).sum()
