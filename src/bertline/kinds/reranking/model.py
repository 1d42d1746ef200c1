"""Re-ranking with a cross-encoder: query and candidate are encoded together and get one logit (arXiv 1901.04085)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.finetuning.encoding import INDICES, LengthSortedBatches, Sequences, any_of, encode_texts, outputs_of
from bertline.finetuning.task_kind import Batch, Batches, Calibration, LossOptions, Statistics, TaskKind
from bertline.foundation.seeds import generator
from bertline.kinds.reranking.config import RerankingTaskConfig
from bertline.modeling.losses import sigmoid_divergence
from bertline.tasks.metrics import ranking
from bertline.tasks.stored_rows import CandidateRows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine

CandidateScores = list[NDArray[np.float32]]
"""For each query, the logits of its candidates, in their order; or their first-stage scores."""
# Range of logits below which candidates differ only by rounding.
_DEGENERATE_SPREAD = 1e-3


@dataclass(frozen=True, slots=True)
class EncodedCandidates:
    """Sequences `[CLS] query [SEP] candidate [SEP]` for each candidate of each query, grouped by query."""

    sequences: Sequences
    relevant: NDArray[np.bool_]
    """Whether the candidate of each sequence is relevant."""
    offsets: NDArray[np.int64]
    """Offsets [N + 1]: the sequences of query n are offsets[n] up to offsets[n + 1]."""


class _SampledBatches:
    """Batches of all relevant candidates and, for each, up to `num_negatives` irrelevant ones of its query.

    The irrelevant candidates are redrawn each epoch; `num_negatives` 0 takes all of them.
    """

    def __init__(self, encoded: EncodedCandidates, *, num_negatives: int, batch_size: int, seed: int) -> None:
        self._encoded = encoded
        self._batch_size = batch_size
        self._seed = seed
        self._epochs = 0
        self._groups: list[tuple[NDArray[np.int64], NDArray[np.int64], int]] = []
        for start, end in zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True):
            places = np.arange(start, end)
            right, wrong = places[encoded.relevant[start:end]], places[~encoded.relevant[start:end]]
            drawn = len(wrong) if num_negatives == 0 else min(len(wrong), num_negatives * len(right))
            self._groups.append((right, wrong, drawn))
        self._num_pairs = sum(len(right) + drawn for right, _, drawn in self._groups)

    def __len__(self) -> int:
        return math.ceil(self._num_pairs / self._batch_size)

    def __iter__(self) -> Iterator[Batch]:
        random = generator(self._seed, "negatives", self._epochs)
        chosen = np.concatenate(
            [
                part
                for right, wrong, drawn in self._groups
                for part in (right, random.choice(wrong, drawn, replace=False) if len(wrong) else wrong)
            ]
        )
        sequences, relevant = self._encoded.sequences, self._encoded.relevant

        def make(indices: NDArray[np.integer]) -> Batch:
            pairs = chosen[indices]
            return {
                INDICES: torch.from_numpy(pairs),
                **sequences.batch(pairs),
                "relevant": torch.from_numpy(relevant[pairs].astype(np.float32)),
            }

        lengths = sequences.lengths[chosen]
        epoch_seed = int(random.integers(2**62))
        self._epochs += 1
        yield from LengthSortedBatches(lengths, make, batch_size=self._batch_size, seed=epoch_seed)


class Reranking(TaskKind[CandidateRows, EncodedCandidates, CandidateScores]):
    """Re-ranks the candidates of each query. Predictions are logits, one array per query."""

    rows_class = CandidateRows
    config: RerankingTaskConfig
    head = "pair"
    outputs = ("relevance",)
    score_names = ("map", "mrr", "ndcg@10")

    # ---- training

    def encode(self, rows: CandidateRows, tokenizer: Tokenizer) -> EncodedCandidates:
        sizes = [len(candidates) for candidates in rows.candidates]
        queries = [query for query, size in zip(rows.queries, sizes, strict=True) for _ in range(size)]
        texts = [text for candidates in rows.candidates for text in candidates]
        sequences = encode_texts(queries, texts, tokenizer, max_length=self.config.max_length)
        relevant = np.array([value > 0 for values in rows.relevances for value in values], dtype=np.bool_)
        return EncodedCandidates(sequences, relevant, np.cumsum([0, *sizes]))

    def num_cut(self, encoded: EncodedCandidates) -> int:
        """See `TaskKind.num_cut`: queries with a truncated query-candidate pair."""
        return int(any_of(encoded.sequences.cut, encoded.offsets).sum())

    def training_batches(self, encoded: EncodedCandidates, *, batch_size: int, seed: int) -> Batches:
        """See `TaskKind.training_batches`: a batch consists of query-candidate pairs."""
        return _SampledBatches(encoded, num_negatives=self.config.num_negatives, batch_size=batch_size, seed=seed)

    def soft_loss(self, outputs: Tensor, teacher: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Compute the mean divergence from the teacher's probability of relevance."""
        return sigmoid_divergence(outputs.float(), teacher, temperature).mean()

    def hard_loss(self, model: nn.Module, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """See `TaskKind.hard_loss`: binary cross-entropy of each pair (arXiv 1901.04085, equation 1)."""
        logits = outputs[:, 0].float()
        smoothing = options.label_smoothing
        targets = batch["relevant"] * (1 - smoothing) + smoothing / 2
        return F.binary_cross_entropy_with_logits(logits, targets)

    # ---- predicting and scoring

    def predict(self, model: nn.Module, encoded: EncodedCandidates, machine: Machine) -> CandidateScores:
        scores = outputs_of(model, encoded.sequences, machine, 1)[:, 0]
        return np.split(scores, encoded.offsets[1:-1]) if len(encoded.offsets) > 1 else []

    def first_stage(self, rows: CandidateRows) -> CandidateScores:
        """Return the first-stage scores stored with the candidates."""
        return [np.array(scores, dtype=np.float32) for scores in rows.first_scores]

    def statistics(self, rows: CandidateRows, predictions: CandidateScores, calibration: Calibration) -> Statistics:
        """Return average precision, reciprocal rank and nDCG@10, [N, 3]. Relevant documents missing from the candidates
        count as not found."""
        values = np.zeros((len(rows), len(self.score_names)))
        for row, scores in enumerate(predictions):
            judged = rows.all_relevances[row]
            order = ranking.trec_order(rows.candidate_ids[row], scores)
            ranked = [rows.relevances[row][place] for place in order]
            values[row] = (
                ranking.average_precision(ranked, ranking.num_relevant(judged)),
                ranking.reciprocal_rank(ranked),
                ranking.ndcg(ranked, judged, 10),
            )
        return values

    def table(self, rows: CandidateRows, predictions: CandidateScores, calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`: `gold` has the relevant candidates, `predicted` the top one; `correct` is the task's
        metric."""
        first = [
            int(ranking.trec_order(ids, scores)[0]) if len(ids) else None
            for ids, scores in zip(rows.candidate_ids, predictions, strict=True)
        ]
        return pa.table(
            {
                "id": rows.ids,
                "query": rows.queries,
                "gold": [_right(texts, values) for texts, values in zip(rows.candidates, rows.relevances, strict=True)],
                "predicted": ["" if place is None else rows.candidates[row][place] for row, place in enumerate(first)],
                "score": [
                    0.0 if place is None else _sigmoid(float(predictions[row][place]))
                    for row, place in enumerate(first)
                ],
                "correct": self.statistics(rows, predictions, calibration)[
                    :, self.score_names.index(self.config.metric)
                ],
            }
        )

    def details(self, rows: CandidateRows, predictions: CandidateScores, calibration: Calibration) -> dict[str, Any]:
        """Return `before`: the scores of the first-stage ranking."""
        return {"before": self.scores(self.statistics(rows, self.first_stage(rows), calibration))}

    def is_degenerate(self, rows: CandidateRows, predictions: CandidateScores, calibration: Calibration) -> bool:
        """See `TaskKind.is_degenerate`: all candidates have the same score."""
        scores = np.concatenate([np.zeros(0, dtype=np.float32), *predictions])
        return len(scores) > 1 and float(np.ptp(scores)) < _DEGENERATE_SPREAD


def _right(texts: list[str], relevances: list[int]) -> str:
    return " | ".join(text for text, value in zip(texts, relevances, strict=True) if value > 0)


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))


task_kind = Reranking
