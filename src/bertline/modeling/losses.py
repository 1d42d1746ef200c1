"""Losses of pretraining as sums and counts, so that the caller can take the mean over the GLOBAL batch.

A mean within each micro-batch would weigh a target more where its micro-batch has few of them.
Shapes: B sequences, P masked positions, V pieces of the vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED_LABEL = -100


def masked_lm_loss_sum(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the masked language model, summed over the targets.

    Args:
        logits: [..., P, V], any float type; the loss is computed in fp32.
        labels: [..., P] ids, -100 where there are fewer targets than P.

    Returns:
        The sum of losses in nats (fp32 scalar, 0 without targets) and the number of targets (int64 scalar).

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
    """The number of targets [..., P] whose highest score [..., P, V] is the right piece (int64 scalar).

    Of equal scores the first one counts, as `argmax` has it. It is found by the highest score, which the loss computes
    too, and where that stands: the compiler makes both part of the loops of the loss, which it cannot do for `argmax`.

    >>> masked_lm_correct(torch.tensor([[[0.1, 0.9], [0.8, 0.2]]]), torch.tensor([[1, -100]])).item()
    1
    """
    scores = logits.flatten(0, -2).float()
    places = torch.arange(scores.shape[-1], dtype=torch.int32, device=scores.device)
    is_highest = scores == scores.amax(-1, keepdim=True)
    first = torch.where(is_highest, places, scores.shape[-1]).amin(-1)
    return (first == labels.flatten()).sum()


def next_sentence_loss_sum(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of next sentence prediction, summed over the sequences.

    Args:
        logits: [B, 2].
        labels: [B], 0 is next, 1 is a random segment, -100 where there is no sequence.

    Returns:
        The sum of losses in nats (fp32 scalar).

    References:
        Devlin et al., BERT (arXiv 1810.04805), section 3.1, task 2.
    """
    return F.cross_entropy(logits.float(), labels, ignore_index=IGNORED_LABEL, reduction="sum")


def next_sentence_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """The number of sequences whose higher score [B, 2] is right (int64 scalar)."""
    return (logits.argmax(-1) == labels).sum()
