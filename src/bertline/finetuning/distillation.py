"""Distillation of a fine-tuned teacher: losses of its soft targets, and batches that carry them.

Losses are those of single entries, so that a kind of task takes the mean as it does for its labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertline.finetuning.encoding import INDICES, Epochs, tensors
from bertline.foundation.seeds import generator
from bertline.kinds.base import SOFT_TARGETS, UNLABELLED, Batch, Batches
from bertline.modeling.losses import softmax_divergence


def sigmoid_divergence(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return the same for each of independent labels [...], whose two outcomes have the logits z and 0."""
    student, target = (torch.stack([each, torch.zeros_like(each)], dim=-1) for each in (logits, teacher))
    return softmax_divergence(student, target, temperature)


def vector_distance(vectors: Tensor, teacher: Tensor) -> Tensor:
    """Return the squared distance [N] of vectors [N, H] from the teacher's; of unit vectors it is 2 - 2 cosine.

    References:
        Reimers and Gurevych 2020 (arXiv 2004.09813), section 2.
    """
    return (vectors - teacher).square().sum(-1)


def distilled_batches(parts: Sequence[tuple[Batches, NDArray[np.float32]]], *, seed: int) -> Epochs:
    """Return batches with the teacher's soft targets: those of labelled rows and, marked, of unlabelled ones.

    Each epoch has all batches of both, in an order that depends on the seed and the epoch number.

    Args:
        parts: The batches of labelled and, if there are any, of unlabelled rows, each with the soft targets that their
            `INDICES` count.
        seed: Seed of the order.
    """
    turns = np.repeat(np.arange(len(parts)), [len(batches) for batches, _ in parts])

    def batches(epoch: int) -> Iterator[Batch]:
        batches_of_parts = [iter(batches) for batches, _ in parts]
        for part in generator(seed, "parts", epoch).permutation(turns):
            batch, soft = next(batches_of_parts[part]), parts[part][1]
            batch |= tensors(**{SOFT_TARGETS: soft[batch[INDICES].numpy()]})
            yield batch if part == 0 else {**batch, UNLABELLED: torch.ones(())}

    return Epochs(len(turns), 1, batches)
