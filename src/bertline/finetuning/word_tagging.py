"""Tagging of words: a label for each word, predicted from its tokens (paper, section 5.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.finetuning.encoding import scoring_batches
from bertline.finetuning.task_kind import Batch, Calibration, HeadSettings, LossOptions, TaskKind
from bertline.finetuning.token_marks import NUM_CASES, add_marked_types, case_of
from bertline.finetuning.word_windows import EncodedWords, encode_words, word_means
from bertline.foundation.labels import IGNORED_LABEL
from bertline.modeling.losses import softmax_divergence
from bertline.tasks.stored_rows import TaggedRows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine
from bertline.training.probe import evaluating

OUTSIDE_MARGIN = "outside_margin"
"""Calibration key: margin by which the logit of O has to exceed that of the best other tag."""


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


class WordTagger(TaskKind[TaggedRows, EncodedWords, TagPredictions]):
    """Base class of the kinds that predict a label for each word, decided word by word from a softmax."""

    rows_class = TaggedRows
    # Most words of any sentence are tagged correctly, so a single wrong word makes the sentence an error.
    right_from = 1.0
    head = "tokens"

    # ---- the model

    def new_model(self, folder: Path, head: HeadSettings) -> nn.Module:
        tagger: Any = super().new_model(folder, head)
        if self.config.word_case == "marked":
            add_marked_types(tagger.bert, NUM_CASES)
        return tagger

    # ---- training

    def encode(self, rows: TaggedRows, tokenizer: Tokenizer) -> EncodedWords:
        return encode_words(
            rows,
            self.labels,
            tokenizer,
            max_length=self.config.max_length,
            overlap=self.config.window_overlap,
            mark=case_of if self.config.word_case == "marked" else None,
        )

    def trained_on(self, encoded: EncodedWords) -> NDArray[np.int64]:
        # A window in which no word starts has no labels.
        return np.flatnonzero(encoded.num_words > 0)

    def training_outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the logits of the words, [B, W, L]."""
        return self.word_logits(super().training_outputs(model, batch), batch)

    def hard_loss(self, model: nn.Module, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the mean cross-entropy over words."""
        return options.cross_entropy(outputs, batch["word_labels"])

    def soft_loss(self, outputs: Tensor, teacher: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Compute the mean divergence from the teacher's distribution over words; a CRF's emissions are logits."""
        theirs = self.word_logits(teacher[:, : batch["input_ids"].shape[1]], batch)
        is_word = batch["word_labels"] != IGNORED_LABEL
        return softmax_divergence(outputs[is_word], theirs[is_word], temperature).mean()

    def label_counts(self, rows: TaggedRows) -> NDArray[np.int64]:
        numbers = {label: number for number, label in enumerate(self.labels)}
        return np.bincount([numbers[tag] for tags in rows.tags for tag in tags], minlength=len(self.labels))

    # ---- predicting and scoring

    def predict(self, model: nn.Module, encoded: EncodedWords, machine: Machine) -> TagPredictions:
        """Decide the label of each word independently."""
        log_probabilities = torch.log_softmax(self.logits_of_words(model, encoded, machine), dim=-1).double().numpy()
        return _decided(np.split(log_probabilities, encoded.row_starts[1:-1]), 0.0)

    def logits_of_words(self, model: nn.Module, encoded: EncodedWords, machine: Machine) -> Tensor:
        """Return the logits of all words [T, L]; each word's come from the window with the most context around it."""
        logits = torch.zeros(int(encoded.row_starts[-1]), len(self.labels))
        with evaluating(model, machine) as forward:
            for indices, _ in scoring_batches(encoded.sequences, max_tokens=machine.scoring_tokens):
                batch = {name: tensor.to(machine.device) for name, tensor in encoded.batch(indices).items()}
                of_tokens = forward(batch["input_ids"], batch["token_type_ids"], batch["attention_mask"])
                of_words = self.word_logits(of_tokens, batch).cpu()
                taken = encoded.taken[indices, : of_words.shape[1]]
                words = encoded.words[indices, : of_words.shape[1]]
                logits[torch.from_numpy(words[taken])] = of_words[torch.from_numpy(taken)]
        return logits

    def table(self, rows: TaggedRows, predictions: TagPredictions, calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`: `gold` and `predicted` are space-separated tags, `correct` the share that is right."""
        predictions = decided(predictions, calibration)
        predicted = self.tags(predictions, {})
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

    def is_degenerate(self, rows: TaggedRows, predictions: TagPredictions, calibration: Calibration) -> bool:
        """Return whether all words have the same label."""
        labels = decided(predictions, calibration).labels
        return len(np.unique(np.concatenate([*labels, np.zeros(0, dtype=np.int64)]))) <= 1

    def tags(self, predictions: TagPredictions, calibration: Calibration) -> list[list[str]]:
        """Return the labels of each row's words."""
        return [[self.labels[number] for number in numbers] for numbers in decided(predictions, calibration).labels]

    def word_logits(self, logits: Tensor, batch: Batch) -> Tensor:
        """Reduce the logits of tokens [B, S, L] to those of words [B, W, L], in fp32."""
        if self.config.word_logits == "first":
            places = batch["word_places"][:, :, None].expand(-1, -1, logits.shape[2])
            return logits.gather(1, places).float()
        return word_means(logits, batch)


def decided(predictions: TagPredictions, calibration: Calibration) -> TagPredictions:
    """Return predictions in which O, the first label, must be exp(margin) times as likely as the best other tag.

    The margin is that of the calibration; without one, and where labels are not decided word by word, nothing changes.
    """
    margin = calibration.get(OUTSIDE_MARGIN, 0.0)
    if margin == 0 or not predictions.word_log_probabilities:
        return predictions
    return _decided(predictions.word_log_probabilities, margin)


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
