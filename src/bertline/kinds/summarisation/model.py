"""Extractive summarisation: the vector of each sentence's own [CLS] predicts whether it belongs in the summary.

References:
    Liu 2019, arXiv 1903.10318, section 2.1 (a [CLS] and an interval segment for each sentence) and 2.2 (the simple
    classifier); Liu and Lapata 2019, arXiv 1908.08345, sections 3.1 and 3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.finetuning.encoding import LengthSortedBatches, Sequences, scoring_batches
from bertline.finetuning.task_kind import Batch, Batches, HeadSettings, LossOptions, TaskKind
from bertline.kinds.summarisation.config import SummarisationTaskConfig
from bertline.modeling.attention import AttentionKind
from bertline.modeling.config import ModelConfig
from bertline.modeling.heads import BertForTokenClassification
from bertline.modeling.huggingface import load_with_head, save_model
from bertline.tasks.metrics.rouge import rouge
from bertline.tasks.stored_rows import SummaryRows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine
from bertline.training.evaluating import evaluating

SCORES = ("rouge1", "rouge2", "rougeL")
NO_LABEL = -1


@dataclass(frozen=True, slots=True)
class EncodedSummaries:
    """Documents split into W groups of consecutive sentences, `[CLS] one [SEP] [CLS] two [SEP] ...`, in order."""

    sequences: Sequences
    """The W groups; segments A and B alternate from sentence to sentence."""
    labels: NDArray[np.int64]
    """Labels [W, S]: 1 at the [CLS] of a sentence of the summary, 0 at that of any other; `NO_LABEL` elsewhere."""
    is_first: NDArray[np.bool_]
    """Whether the group is the first of its document [W]; training uses only these."""
    num_sentences: NDArray[np.int64]
    """Number of sentences of each document [documents]."""
    cut: NDArray[np.bool_]
    """Whether a sentence of the document was truncated [documents]."""


class Summarisation(TaskKind[SummaryRows, EncodedSummaries, list[NDArray[np.float64]]]):
    """Selects the `num_sentences` sentences with the highest probabilities, in document order.

    Predictions are the probabilities of each document's sentences. A document longer than `max_length` is split into
    groups of whole sentences; training uses the first group of each document.
    """

    rows_class = SummaryRows

    @property
    def unused_options(self) -> dict[str, str]:
        """See `TaskKind.unused_options`: none."""
        return {}

    def new_model(self, folder: Path, head: HeadSettings) -> BertForTokenClassification:
        return load_with_head(
            folder,
            _maker(head.attention, head.dropout_prob),
            new_head=("classifier.",),
            dropout_prob=head.dropout_prob,
            seed=head.seed,
        )

    def load_model(self, folder: Path, *, attention: AttentionKind = "plain") -> BertForTokenClassification:
        return load_with_head(folder, _maker(attention, 0.0))

    def save_model(self, model: nn.Module, folder: Path) -> None:
        save_model(model, folder, id2label={0: "summary"})

    def encode(self, rows: SummaryRows, tokenizer: Tokenizer) -> EncodedSummaries:
        return encode_documents(rows, tokenizer, max_length=self.config.max_length)

    def lengths(self, encoded: EncodedSummaries) -> NDArray[np.int64]:
        return encoded.sequences.lengths

    def num_cut(self, encoded: EncodedSummaries) -> int:
        """Return the number of documents with a truncated sentence."""
        return int(encoded.cut.sum())

    def training_batches(self, encoded: EncodedSummaries, *, batch_size: int, seed: int) -> Batches:
        firsts = np.flatnonzero(encoded.is_first)

        def make(indices: NDArray[np.integer]) -> Batch:
            batch = encoded.sequences.batch(firsts[indices])
            longest = batch["input_ids"].shape[1]
            return {**batch, "labels": torch.from_numpy(encoded.labels[firsts[indices], :longest])}

        return LengthSortedBatches(encoded.sequences.lengths[firsts], make, batch_size=batch_size, seed=seed)

    def loss(self, model: nn.Module, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the mean binary cross-entropy over the sentences of the batch, weighted by class weights if given."""
        logits = model(batch["input_ids"], batch["token_type_ids"], batch["attention_mask"])[..., 0].float()
        labels = batch["labels"][batch["labels"] != NO_LABEL]
        targets = labels.float() * (1 - options.label_smoothing) + options.label_smoothing / 2
        weights = None if options.class_weights is None else options.class_weights[labels]
        losses = F.binary_cross_entropy_with_logits(
            logits[batch["labels"] != NO_LABEL], targets, weight=weights, reduction="sum"
        )
        return losses / (len(labels) if weights is None else weights.sum())

    def label_counts(self, rows: SummaryRows) -> NDArray[np.int64]:
        """Return the number of sentences outside and inside the summaries."""
        return np.bincount([label for chosen in rows.chosen for label in chosen], minlength=2)

    def predict(self, model: nn.Module, encoded: EncodedSummaries, machine: Machine) -> list[NDArray[np.float64]]:
        at_cls = encoded.labels != NO_LABEL
        probabilities = np.zeros(at_cls.shape, dtype=np.float64)
        with evaluating(model, machine) as forward:
            for indices, batch in scoring_batches(encoded.sequences, max_tokens=machine.scoring_tokens):
                inputs = (batch[name].to(machine.device) for name in ("input_ids", "token_type_ids", "attention_mask"))
                scores = torch.sigmoid(forward(*inputs)[..., 0].float()).cpu().numpy()
                probabilities[indices, : scores.shape[1]] = scores
        # Boolean indexing is row-major, so the sentences come in document order.
        return np.split(probabilities[at_cls], np.cumsum(encoded.num_sentences)[:-1]) if at_cls.any() else []

    def statistics(
        self, rows: SummaryRows, predictions: list[NDArray[np.float64]], calibration: Mapping[str, float]
    ) -> NDArray[np.float64]:
        """Return the F1 of ROUGE-1, ROUGE-2 and ROUGE-L, [N, 3]."""
        return _rouge_of(rows, self._chosen(predictions))

    def scores(self, statistics: NDArray[np.float64]) -> dict[str, float]:
        return dict(zip(SCORES, statistics.mean(axis=0).tolist(), strict=True))

    def table(
        self, rows: SummaryRows, predictions: list[NDArray[np.float64]], calibration: Mapping[str, float]
    ) -> pa.Table:
        """See `TaskKind.table`: `score` is the mean probability of the chosen sentences, `correct` is ROUGE-1."""
        chosen = self._chosen(predictions)
        return pa.table(
            {
                "id": rows.ids,
                "text": [" ".join(sentences) for sentences in rows.sentences],
                "gold": rows.summaries,
                "predicted": [_joined(*pair) for pair in zip(rows.sentences, chosen, strict=True)],
                "score": [float(of_row[places].mean()) for of_row, places in zip(predictions, chosen, strict=True)],
                "correct": _rouge_of(rows, chosen)[:, 0],
            }
        )

    def details(
        self, rows: SummaryRows, predictions: list[NDArray[np.float64]], calibration: Mapping[str, float]
    ) -> dict[str, Any]:
        """Return `oracle`: the scores of the gold sentences that training uses as targets."""
        return {"oracle": self.scores(_rouge_of(rows, [np.flatnonzero(chosen) for chosen in rows.chosen]))}

    def is_degenerate(
        self, rows: SummaryRows, predictions: list[NDArray[np.float64]], calibration: Mapping[str, float]
    ) -> bool:
        """Return whether every sentence has the same probability, up to rounding."""
        every = np.concatenate(predictions)
        return len(every) > 1 and float(every.max() - every.min()) < 1e-4

    def _chosen(self, predictions: list[NDArray[np.float64]]) -> list[NDArray[np.int64]]:
        """Return the indices of the best sentences of each document, ascending; ties go to the first."""
        return [np.sort(np.argsort(-scores, kind="stable")[: self.config.num_sentences]) for scores in predictions]


def encode_documents(rows: SummaryRows, tokenizer: Tokenizer, *, max_length: int) -> EncodedSummaries:
    """Split documents into groups of whole sentences of at most `max_length` tokens.

    A sentence longer than that is truncated and forms its own group.
    """
    ids = iter(tokenizer.encode_literally([sentence for sentences in rows.sentences for sentence in sentences]))
    groups: list[list[list[int]]] = []
    labels: list[list[int]] = []
    is_first: list[bool] = []
    cut = np.zeros(len(rows), dtype=np.bool_)
    for row, sentences in enumerate(rows.sentences):
        room = 0
        for place in range(len(sentences)):
            whole = next(ids)
            cut[row] |= len(whole) > max_length - 2
            sentence = [tokenizer.cls_id, *whole[: max_length - 2], tokenizer.sep_id]
            if place == 0 or len(sentence) > room:
                groups.append([])
                labels.append([])
                is_first.append(place == 0)
                room = max_length
            room -= len(sentence)
            groups[-1].append(sentence)
            labels[-1].append(rows.chosen[row][place] if rows.chosen[row] else 0)
    sequences = _laid_out(groups, pad_id=tokenizer.pad_id)
    at_cls = np.full(sequences.input_ids.shape, NO_LABEL, dtype=np.int64)
    for number, group in enumerate(groups):
        at_cls[number, _begins(group)] = labels[number]
    return EncodedSummaries(
        sequences=sequences,
        labels=at_cls,
        is_first=np.array(is_first, dtype=np.bool_),
        num_sentences=np.array([len(sentences) for sentences in rows.sentences], dtype=np.int64),
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
    # Truncation is recorded per document (`EncodedSummaries.cut`).
    return Sequences(input_ids, token_type_ids, lengths, np.zeros(len(groups), dtype=np.bool_))


def _begins(group: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Return the position of each sentence's [CLS]."""
    return np.cumsum([0, *(len(sentence) for sentence in group[:-1])])


def _maker(attention: AttentionKind, dropout_prob: float) -> Callable[[ModelConfig, int, int], Any]:
    def make(config: ModelConfig, vocab_size: int, pad_token_id: int) -> BertForTokenClassification:
        return BertForTokenClassification(
            config,
            vocab_size=vocab_size,
            pad_token_id=pad_token_id,
            num_labels=1,
            classifier_dropout=dropout_prob,
            attention=attention,
        )

    return make


def _joined(sentences: Sequence[str], chosen: NDArray[np.int64]) -> str:
    return " ".join(sentences[place] for place in chosen)


def _rouge_of(rows: SummaryRows, chosen: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    found = (
        rouge(_joined(sentences, places), summary)
        for sentences, places, summary in zip(rows.sentences, chosen, rows.summaries, strict=True)
    )
    return np.array([[scores[name] for name in SCORES] for scores in found]).reshape(-1, len(SCORES))


def task_kind(config: SummarisationTaskConfig, labels: Sequence[str]) -> Summarisation:
    """Return the kind of a task; `labels` are those of its manifest."""
    return Summarisation(config, labels)
