"""Token classification: a tag for each word, predicted from its tokens (paper, section 5.3), with softmax or a CRF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.finetuning import word_case
from bertline.finetuning.encoding import LengthSortedBatches, scoring_batches
from bertline.finetuning.task_kind import Batch, Batches, Calibration, HeadSettings, LossOptions, TaskKind
from bertline.finetuning.token_marks import add_marked_types
from bertline.finetuning.word_windows import NO_LABEL, EncodedWords, encode_words, word_means
from bertline.kinds.token_classification.config import TokenClassificationTaskConfig
from bertline.modeling.attention import AttentionKind
from bertline.modeling.crf import BertForTokenClassificationWithCrf, LinearChainCrf, read_crf, write_crf
from bertline.modeling.heads import BertForTokenClassification
from bertline.modeling.huggingface import load_with_head, save_model
from bertline.tasks.metrics import entities as metrics
from bertline.tasks.stored_rows import TaggedRows
from bertline.tasks.tags import types_of
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine
from bertline.training.evaluating import evaluating

OUTSIDE_MARGIN = "outside_margin"
"""Calibration key: margin by which the logit of O has to exceed that of the best other tag."""
# Sorted by distance to 0, so that ties go to the margin nearest to it.
_MARGINS = tuple(sorted((step / 10 for step in range(-5, 21)), key=lambda margin: (abs(margin), margin)))
_ROWS_DECODED_TOGETHER = 256


@dataclass(frozen=True, slots=True)
class TagPredictions:
    """Predicted labels of N rows."""

    labels: list[NDArray[np.int64]]
    """For each row, the label ids of its words."""
    confidences: NDArray[np.float64]
    """Probability of each row's labels as a sequence [N]."""
    word_confidences: list[NDArray[np.float64]] = field(default_factory=list)
    """For each row, the marginal probability of each word's label; empty if the predictor provides none."""
    word_log_probabilities: list[NDArray[np.float64]] = field(default_factory=list)
    """For each row, label log probabilities [words, L]; empty if labels are not decided word by word."""

    def with_outside_margin(self, margin: float) -> TagPredictions:
        """Return predictions in which O, the first label, must be exp(margin) times as likely as the best other tag."""
        if margin == 0 or not self.word_log_probabilities:
            return self
        return _decided(self.word_log_probabilities, margin)


class TokenClassification(TaskKind[TaggedRows, EncodedWords, TagPredictions]):
    """Predicts a label for each word of a row."""

    rows_class = TaggedRows
    # Most words of any sentence are tagged correctly, so a single wrong word makes the sentence an error.
    right_from = 1.0

    @property
    def types(self) -> tuple[str, ...]:
        """Entity types, in the order of the columns of the statistics."""
        return types_of(self.labels)

    @property
    def unused_options(self) -> dict[str, str]:
        """See `TaskKind.unused_options`."""
        if self.config.head == "softmax":
            return {}
        reason = "a CRF scores whole label sequences (head: softmax heeds it)"
        return dict.fromkeys(("class_weights", "label_smoothing"), reason)

    # ---- the model

    def new_model(self, folder: Path, head: HeadSettings) -> nn.Module:
        tagger = self._tagger(folder, head.attention, head)
        if self.config.word_case == "marked":
            add_marked_types(tagger.bert, word_case.NUM_MARKS)
        return self._with_head(tagger)

    def load_model(self, folder: Path, *, attention: AttentionKind = "plain") -> nn.Module:
        model = self._with_head(self._tagger(folder, attention, None))
        if isinstance(model, BertForTokenClassificationWithCrf):
            read_crf(model.crf, folder)
        return model

    def save_model(self, model: nn.Module, folder: Path) -> None:
        """See `TaskKind.save_model`. With a CRF, the Hugging Face model gives the emissions; the CRF is in
        `crf.safetensors`."""
        names = dict(enumerate(self.labels))
        if isinstance(model, BertForTokenClassificationWithCrf):
            save_model(model.tagger, folder, id2label=names)
            write_crf(model.crf, folder)
        else:
            save_model(model, folder, id2label=names)

    def _tagger(self, folder: Path, attention: AttentionKind, head: HeadSettings | None) -> BertForTokenClassification:
        def make(config: Any, vocab_size: int, pad_token_id: int) -> BertForTokenClassification:
            return BertForTokenClassification(
                config,
                vocab_size=vocab_size,
                pad_token_id=pad_token_id,
                num_labels=len(self.labels),
                classifier_dropout=config.hidden_dropout_prob,
                attention=attention,
            )

        if head is None:
            return load_with_head(folder, make)
        return load_with_head(folder, make, new_head=("classifier.",), dropout_prob=head.dropout_prob, seed=head.seed)

    def _with_head(self, tagger: BertForTokenClassification) -> nn.Module:
        return BertForTokenClassificationWithCrf(tagger, self.labels) if self.config.head == "crf" else tagger

    # ---- training

    def encode(self, rows: TaggedRows, tokenizer: Tokenizer) -> EncodedWords:
        return encode_words(
            rows,
            self.labels,
            tokenizer,
            max_length=self.config.max_length,
            overlap=self.config.window_overlap,
            mark=word_case.case_of if self.config.word_case == "marked" else None,
        )

    def lengths(self, encoded: EncodedWords) -> NDArray[np.int64]:
        return encoded.sequences.lengths

    def num_cut(self, encoded: EncodedWords) -> int:
        return 0  # windows contain every word

    def training_batches(self, encoded: EncodedWords, *, batch_size: int, seed: int) -> Batches:
        # A window in which no word starts has no labels.
        learnt = np.flatnonzero(encoded.num_words > 0)
        return LengthSortedBatches(
            encoded.sequences.lengths[learnt],
            lambda indices: encoded.batch(learnt[indices]),
            batch_size=batch_size,
            seed=seed,
        )

    def loss(self, model: nn.Module, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the mean cross-entropy over words (softmax) or negative log-likelihood over windows (CRF)."""
        logits = self._word_logits(model(batch["input_ids"], batch["token_type_ids"], batch["attention_mask"]), batch)
        labels = batch["word_labels"]
        if not isinstance(model, BertForTokenClassificationWithCrf):
            return F.cross_entropy(
                logits.flatten(0, 1),
                labels.flatten(),
                weight=options.class_weights,
                label_smoothing=options.label_smoothing,
                ignore_index=NO_LABEL,
            )
        return -model.crf.log_likelihood(logits, labels.clamp(min=0), batch["num_words"]).mean()

    def label_counts(self, rows: TaggedRows) -> NDArray[np.int64]:
        numbers = {label: number for number, label in enumerate(self.labels)}
        return np.bincount([numbers[tag] for tags in rows.tags for tag in tags], minlength=len(self.labels))

    # ---- predicting and scoring

    def predict(self, model: nn.Module, encoded: EncodedWords, machine: Machine) -> TagPredictions:
        """Predict labels; each word's logits come from the window with the most context around it.

        A word that BERT's text cleaning removes entirely (control characters) is O, and is left out of the CRF chain.
        """
        logits = torch.zeros(len(encoded.readable), len(self.labels))
        with evaluating(model, machine) as forward:
            for indices, _ in scoring_batches(encoded.sequences, max_tokens=machine.scoring_tokens):
                batch = {name: tensor.to(machine.device) for name, tensor in encoded.batch(indices).items()}
                of_tokens = forward(batch["input_ids"], batch["token_type_ids"], batch["attention_mask"])
                of_words = self._word_logits(of_tokens, batch).cpu()
                taken = encoded.taken[indices, : of_words.shape[1]]
                words = encoded.words[indices, : of_words.shape[1]]
                logits[torch.from_numpy(words[taken])] = of_words[torch.from_numpy(taken)]
        crf = model.crf if isinstance(model, BertForTokenClassificationWithCrf) else None
        return _softmax_labels(logits, encoded) if crf is None else _crf_labels(crf, logits, encoded)

    def calibrate(self, rows: TaggedRows, predictions: TagPredictions) -> Calibration:
        """Choose the margin of O with the best score on these rows, if configured; 0 if no other is better."""
        if self.config.outside_margin == "none" or not predictions.word_log_probabilities:
            return {}

        def score(margin: float) -> float:
            return self.scores(self.statistics(rows, predictions, {OUTSIDE_MARGIN: margin}))[self.config.metric]

        return {OUTSIDE_MARGIN: max(_MARGINS, key=score)}

    def statistics(
        self, rows: TaggedRows, predictions: TagPredictions, calibration: Mapping[str, float]
    ) -> NDArray[np.float64]:
        """Return words, correct words, and for each type hits, predicted and gold entities, [N, 2 + 3 types]."""
        shares = [
            metrics.row_statistics(gold, predicted, self.types)
            for gold, predicted in zip(rows.tags, self._tags(predictions, calibration), strict=True)
        ]
        return np.array(shares).reshape(len(shares), 2 + 3 * len(self.types))

    def scores(self, statistics: NDArray[np.float64]) -> dict[str, float]:
        return metrics.scores_of(statistics)

    def table(self, rows: TaggedRows, predictions: TagPredictions, calibration: Mapping[str, float]) -> pa.Table:
        """See `TaskKind.table`: `gold` and `predicted` are space-separated tags, `correct` the share that is right."""
        predictions = decided(predictions, calibration)
        predicted = self._tags(predictions, {})
        shares = [
            float(np.mean([one == other for one, other in zip(gold, tags, strict=True)]))
            for gold, tags in zip(rows.tags, predicted, strict=True)
        ]
        return pa.table(
            {
                "id": rows.ids,
                "text": [" ".join(words) for words in rows.words],
                "words": pa.array(rows.words, pa.list_(pa.string())),
                "gold": [" ".join(tags) for tags in rows.tags],
                "predicted": [" ".join(tags) for tags in predicted],
                "score": predictions.confidences,
                "correct": shares,
            }
        )

    def details(
        self, rows: TaggedRows, predictions: TagPredictions, calibration: Mapping[str, float]
    ) -> dict[str, Any]:
        return {"by_type": metrics.by_type(self.statistics(rows, predictions, calibration), self.types)}

    def is_degenerate(self, rows: TaggedRows, predictions: TagPredictions, calibration: Mapping[str, float]) -> bool:
        """Return whether all words have the same label: in practice, no entity is found."""
        labels = decided(predictions, calibration).labels
        return len(np.unique(np.concatenate([*labels, np.zeros(0, dtype=np.int64)]))) <= 1

    def _tags(self, predictions: TagPredictions, calibration: Mapping[str, float]) -> list[list[str]]:
        return [[self.labels[number] for number in numbers] for numbers in decided(predictions, calibration).labels]

    def _word_logits(self, logits: Tensor, batch: Batch) -> Tensor:
        """Reduce the logits of tokens [B, S, L] to those of words [B, W, L], in fp32."""
        if self.config.word_logits == "first":
            places = batch["word_places"][:, :, None].expand(-1, -1, logits.shape[2])
            return logits.gather(1, places).float()
        return word_means(logits, batch)


def decided(predictions: TagPredictions, calibration: Mapping[str, float]) -> TagPredictions:
    """Return the predictions with the margin of the calibration applied."""
    return predictions.with_outside_margin(calibration.get(OUTSIDE_MARGIN, 0.0))


def _softmax_labels(logits: Tensor, encoded: EncodedWords) -> TagPredictions:
    """Decide the label of each word independently, from logits [T, L]."""
    log_probabilities = torch.log_softmax(logits, dim=-1).double().numpy()
    log_probabilities[~encoded.readable] = -np.inf
    log_probabilities[~encoded.readable, 0] = 0.0
    return _decided(np.split(log_probabilities, encoded.row_starts[1:-1]), 0.0)


def _decided(word_log_probabilities: list[NDArray[np.float64]], margin: float) -> TagPredictions:
    """Choose the most likely label of each word after lowering the log probability of O by `margin`.

    The confidences use the original probabilities.
    """
    together = np.concatenate(word_log_probabilities)
    shifted = together.copy()
    shifted[:, 0] -= margin
    labels = shifted.argmax(axis=1)
    of_words = np.take_along_axis(together, labels[:, None], axis=1)[:, 0]
    ends = np.cumsum([len(row) for row in word_log_probabilities])[:-1]
    return TagPredictions(
        np.split(labels, ends),
        np.array([np.exp(row.sum()) for row in np.split(of_words, ends)]),
        np.split(np.exp(of_words), ends),
        word_log_probabilities,
    )


def _crf_labels(crf: LinearChainCrf, logits: Tensor, encoded: EncodedWords) -> TagPredictions:
    """Decode the label sequence of each row as a whole, across its windows, from logits [T, L]."""
    labels = np.zeros(len(logits), dtype=np.int64)
    confidences = np.ones(len(encoded.row_starts) - 1)
    of_words = np.ones(len(logits))
    device = crf.start.device
    words_of_rows = [
        begin + np.flatnonzero(encoded.readable[begin:end])
        for begin, end in zip(encoded.row_starts, encoded.row_starts[1:], strict=False)
    ]
    # Rows of similar length are decoded together; rows without words are left out.
    order = sorted((row for row, words in enumerate(words_of_rows) if len(words)), key=lambda r: len(words_of_rows[r]))
    for first in range(0, len(order), _ROWS_DECODED_TOGETHER):
        rows = order[first : first + _ROWS_DECODED_TOGETHER]
        words = [torch.from_numpy(words_of_rows[row]) for row in rows]
        lengths = torch.tensor([len(numbers) for numbers in words], device=device)
        emissions = nn.utils.rnn.pad_sequence([logits[numbers] for numbers in words], batch_first=True).to(device)
        paths, log_probabilities = crf.decode(emissions, lengths)
        confidences[rows] = log_probabilities.double().exp().cpu().numpy()
        marginals = _marginals(crf, emissions, lengths).gather(2, paths[:, :, None])[:, :, 0].double().cpu()
        for numbers, path, of_path in zip(words, paths.cpu(), marginals, strict=True):
            labels[numbers] = path[: len(numbers)]
            of_words[numbers] = of_path[: len(numbers)]
    ends = encoded.row_starts[1:-1]
    return TagPredictions(np.split(labels, ends), confidences, np.split(of_words, ends))


def _marginals(crf: LinearChainCrf, emissions: Tensor, lengths: Tensor) -> Tensor:
    """Compute the marginal probability of each label at each word [B, W, L].

    It is the gradient of the log partition function with respect to the emissions.
    """
    with torch.enable_grad():
        emissions = emissions.detach().requires_grad_()
        (marginals,) = torch.autograd.grad(crf.log_partition(emissions, lengths).sum(), emissions)
    return marginals


def task_kind(config: TokenClassificationTaskConfig, labels: Sequence[str]) -> TokenClassification:
    """Return the kind of a task; `labels` are those of its manifest."""
    return TokenClassification(config, labels)
