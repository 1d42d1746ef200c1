"""Token classification: a tag for each word, predicted from its tokens (paper, section 5.3), with softmax or a CRF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertline.finetuning.task_kind import Batch, Calibration, HeadSettings, LossOptions, Statistics
from bertline.finetuning.word_tagging import OUTSIDE_MARGIN, TagPredictions, WordTagger
from bertline.finetuning.word_windows import EncodedWords
from bertline.modeling.attention import AttentionKind
from bertline.modeling.crf import BertForTokenClassificationWithCrf, LinearChainCrf, read_crf, write_crf
from bertline.tasks.metrics import entities as metrics
from bertline.tasks.stored_rows import TaggedRows
from bertline.tasks.tags import types_of
from bertline.training.devices import Machine

# Sorted by distance to 0, so that ties go to the margin nearest to it.
_MARGINS = tuple(sorted((step / 10 for step in range(-5, 21)), key=lambda margin: (abs(margin), margin)))
_ROWS_DECODED_TOGETHER = 256


class TokenClassification(WordTagger):
    """Predicts an IOB2 tag for each word of a row, with softmax or a CRF."""

    @property
    def types(self) -> tuple[str, ...]:
        """Entity types, in the order of the columns of the statistics."""
        return types_of(self.labels)

    @property
    def unused_options(self) -> dict[str, str]:
        if self.config.head == "softmax":
            return super().unused_options
        reason = "a CRF scores whole label sequences (head: softmax heeds it)"
        return {**super().unused_options, **dict.fromkeys(("class_weights", "label_smoothing"), reason)}

    # ---- the model

    def new_model(self, folder: Path, head: HeadSettings) -> nn.Module:
        return self._with_head(super().new_model(folder, head))

    def load_model(self, folder: Path, *, attention: AttentionKind = "plain") -> nn.Module:
        model = self._with_head(super().load_model(folder, attention=attention))
        if isinstance(model, BertForTokenClassificationWithCrf):
            read_crf(model.crf, folder)
        return model

    def save_model(self, model: nn.Module, folder: Path) -> None:
        """See `TaskKind.save_model`. With a CRF, the Hugging Face model gives the emissions; the CRF is in
        `crf.safetensors`."""
        if isinstance(model, BertForTokenClassificationWithCrf):
            super().save_model(model.tagger, folder)
            write_crf(model.crf, folder)
        else:
            super().save_model(model, folder)

    def _with_head(self, tagger: Any) -> nn.Module:
        return BertForTokenClassificationWithCrf(tagger, self.labels) if self.config.head == "crf" else tagger

    # ---- training

    def hard_loss(self, model: nn.Module, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the mean cross-entropy over words (softmax) or negative log-likelihood over windows (CRF)."""
        if not isinstance(model, BertForTokenClassificationWithCrf):
            return super().hard_loss(model, outputs, batch, options)
        return -model.crf.log_likelihood(outputs, batch["word_labels"].clamp(min=0), batch["num_words"]).mean()

    # ---- predicting and scoring

    def predict(self, model: nn.Module, encoded: EncodedWords, machine: Machine) -> TagPredictions:
        """Predict labels; each word's logits come from the window with the most context around it."""
        if not isinstance(model, BertForTokenClassificationWithCrf):
            return super().predict(model, encoded, machine)
        return _crf_labels(model.crf, self.logits_of_words(model, encoded, machine), encoded)

    def calibrate(self, rows: TaggedRows, predictions: TagPredictions) -> Calibration:
        """Choose the margin of O with the best score on these rows, if configured; 0 if no other is better."""
        if self.config.outside_margin == "none" or not predictions.word_log_probabilities:
            return {}

        def score(margin: float) -> float:
            return self.score(self.statistics(rows, predictions, {OUTSIDE_MARGIN: margin}))

        return {OUTSIDE_MARGIN: max(_MARGINS, key=score)}

    def statistics(self, rows: TaggedRows, predictions: TagPredictions, calibration: Calibration) -> Statistics:
        """Return words, correct words, and for each type hits, predicted and gold entities, [N, 2 + 3 types]."""
        shares = [
            metrics.row_statistics(gold, predicted, self.types)
            for gold, predicted in zip(rows.tags, self.tags(predictions, calibration), strict=True)
        ]
        return np.array(shares).reshape(len(shares), 2 + 3 * len(self.types))

    def scores(self, statistics: Statistics) -> dict[str, float]:
        return metrics.scores_of(statistics)

    def details(self, rows: TaggedRows, predictions: TagPredictions, calibration: Calibration) -> dict[str, Any]:
        return {"by_type": metrics.by_type(self.statistics(rows, predictions, calibration), self.types)}


def _crf_labels(crf: LinearChainCrf, logits: Tensor, encoded: EncodedWords) -> TagPredictions:
    """Decode the label sequence of each row as a whole, across its windows, from logits [T, L]."""
    labels = np.zeros(len(logits), dtype=np.int64)
    confidences = np.ones(len(encoded.row_starts) - 1)
    of_words = np.ones(len(logits))
    device = crf.start.device
    words_of_rows = [
        np.arange(begin, end) for begin, end in zip(encoded.row_starts, encoded.row_starts[1:], strict=False)
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


task_kind = TokenClassification
