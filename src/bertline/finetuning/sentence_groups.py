"""Encoding of documents in which each sentence has its own [CLS].

References:
    Liu 2019, arXiv 1903.10318, section 2.1: a [CLS] and an interval segment for each sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.finetuning.encoding import Sequences, outputs_of
from bertline.finetuning.task_kind import Batch, Rows, TaskKind
from bertline.foundation.labels import IGNORED_LABEL
from bertline.modeling.losses import sigmoid_divergence, softmax_divergence
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine

OfSentences = list[NDArray[np.float64]]
"""For each document, an array of its sentences."""


@dataclass(frozen=True, slots=True)
class EncodedSentences:
    """Documents split into W groups of consecutive sentences, `[CLS] one [SEP] [CLS] two [SEP] ...`, in order."""

    sequences: Sequences
    """The W groups; segments A and B alternate from sentence to sentence."""
    labels: NDArray[np.int64]
    """Labels [W, S]: that of a sentence at its [CLS]; `IGNORED_LABEL` elsewhere."""
    is_first: NDArray[np.bool_]
    """Whether the group is the first of its document [W]."""
    num_sentences: NDArray[np.int64]
    """Number of sentences of each document [documents]."""
    cut: NDArray[np.bool_]
    """Whether a sentence of the document was truncated [documents]."""

    def batch(self, groups: NDArray[np.integer]) -> dict[str, Tensor]:
        """Return some groups as one batch, with their `labels`."""
        batch = self.sequences.batch(groups)
        longest = batch["input_ids"].shape[1]
        return {**batch, "labels": torch.from_numpy(self.labels[groups, :longest])}


def encode_documents(
    documents: Sequence[Sequence[str]], labels: Sequence[Sequence[int]], tokenizer: Tokenizer, *, max_length: int
) -> EncodedSentences:
    """Split documents into groups of whole sentences of at most `max_length` tokens.

    A sentence longer than that is truncated and forms its own group.

    Args:
        labels: Label of each sentence; an empty list stands for 0 everywhere.
    """
    longest = tokenizer.single.room(max_length)
    ids = iter(tokenizer.encode_literally([sentence for sentences in documents for sentence in sentences]))
    groups: list[list[list[int]]] = []
    of_groups: list[list[int]] = []
    is_first: list[bool] = []
    cut = np.zeros(len(documents), dtype=np.bool_)
    for row, sentences in enumerate(documents):
        room = 0
        for place in range(len(sentences)):
            whole = next(ids)
            cut[row] |= len(whole) > longest
            sentence = tokenizer.single.sequence(whole[:longest])
            if place == 0 or len(sentence) > room:
                groups.append([])
                of_groups.append([])
                is_first.append(place == 0)
                room = max_length
            room -= len(sentence)
            groups[-1].append(sentence)
            of_groups[-1].append(labels[row][place] if labels[row] else 0)
    sequences = _laid_out(groups, pad_id=tokenizer.pad_id)
    at_cls = np.full(sequences.input_ids.shape, IGNORED_LABEL, dtype=np.int64)
    for number, group in enumerate(groups):
        at_cls[number, np.cumsum([0, *(len(sentence) for sentence in group[:-1])])] = of_groups[number]
    return EncodedSentences(
        sequences=sequences,
        labels=at_cls,
        is_first=np.array(is_first, dtype=np.bool_),
        num_sentences=np.array([len(sentences) for sentences in documents], dtype=np.int64),
        cut=cut,
    )


def _laid_out(groups: Sequence[Sequence[Sequence[int]]], *, pad_id: int) -> Sequences:
    lengths = np.array([sum(map(len, group)) for group in groups], dtype=np.int64)
    shape = (len(groups), int(lengths.max(initial=0)))
    input_ids, token_type_ids = np.full(shape, pad_id, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for number, group in enumerate(groups):
        input_ids[number, : lengths[number]] = [each for sentence in group for each in sentence]
        turns = np.arange(len(group)) % 2
        token_type_ids[number, : lengths[number]] = np.repeat(turns, [len(sentence) for sentence in group])
    # Truncation is recorded per document (`EncodedSentences.cut`).
    return Sequences(input_ids, token_type_ids, lengths, np.zeros(len(groups), dtype=np.bool_))


class SentenceReader(TaskKind[Rows, EncodedSentences, OfSentences]):
    """Base class of the kinds that read the sentences of a document together, and decide on each at its own [CLS].

    A document longer than `max_length` is read in groups of whole sentences.
    """

    head = "tokens"

    def num_cut(self, encoded: EncodedSentences) -> int:
        """Return the number of documents with a truncated sentence."""
        return int(encoded.cut.sum())

    def soft_loss(self, outputs: Tensor, teacher: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Compute the mean divergence from the teacher's distribution over sentences."""
        at_cls = batch["labels"] != IGNORED_LABEL
        theirs = teacher[:, : at_cls.shape[1]][at_cls]
        divergence = sigmoid_divergence if self.outputs else softmax_divergence
        return divergence(outputs[at_cls].float(), theirs, temperature).mean()

    def probabilities(
        self, model: nn.Module, encoded: EncodedSentences, machine: Machine, read: Callable[[Tensor], Tensor]
    ) -> OfSentences:
        """Return the probabilities at the sentences of each document, [sentences, L].

        Args:
            read: Turns logits [..., L] into probabilities.
        """
        at_cls = encoded.labels != IGNORED_LABEL
        shape = (at_cls.shape[1], len(self.outputs or self.labels))
        found = outputs_of(model, encoded.sequences, machine, *shape, read=read)[at_cls].astype(np.float64)
        # Boolean indexing is row-major, so the sentences come in document order.
        return np.split(found, np.cumsum(encoded.num_sentences)[:-1]) if len(found) else []
