"""Fill-mask: filling of blanks and scoring of texts with the pretraining head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from bertline.inference.model import MASK, fill_blanks
from bertline.inference.predictor import FileColumns, InputColumn, TaskPredictor, require_texts, row_ids
from bertline.tasks.stored_rows import PlainRows


class TextScore(NamedTuple):
    """Pseudo-likelihood scores of a text: each token is predicted from all others."""

    pseudo_perplexity: float
    """Pseudo-perplexity of the scored tokens (arXiv 1910.14659); lower is better, nan if there are none."""
    log_prob: float
    """Sum of the log probabilities of the scored tokens, in nats."""
    num_tokens: int
    accuracy: float
    """Top-1 accuracy over the scored tokens; nan if there are none."""


class FillMaskPredictor(TaskPredictor):
    """Scoring of texts; in files, blanks are filled too."""

    def predict(self, texts: Sequence[str]) -> list[TextScore]:  # type: ignore[override]
        """Score each text by masking its tokens in turn. `[MASK]` in a text counts as a word; `fill_mask` fills it."""
        read = require_texts(texts, "texts")
        if not read:
            return []
        rows = PlainRows(row_ids(len(read)), read)
        predictions = self.predictions(rows)
        table = self.kind.table(rows, predictions, self.calibration)
        scores = []
        for tokens, log_prob, correct in zip(
            *(table[name].to_pylist() for name in ("tokens", "log_prob", "correct")), strict=True
        ):
            perplexity = math.exp(-log_prob / tokens) if tokens else math.nan
            scores.append(TextScore(perplexity, log_prob, tokens, correct if tokens else math.nan))
        return scores

    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        return [InputColumn(columns.text, "text")]

    def output_schema(self) -> pa.Schema:
        return pa.schema(
            [
                ("predicted", pa.list_(pa.string())),
                ("probability", pa.list_(pa.float64())),
                ("pseudo_perplexity", pa.float64()),
            ]
        )

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        """Fill each blank with the most likely token; compute the pseudo-perplexity of texts without blanks."""
        (texts,) = inputs
        max_length = self.kind.config.max_length
        whole = [text for text in texts if MASK not in text]
        scores = iter(self.predict(whole))
        rows = []
        for text in texts:
            if MASK in text:
                guesses = [best[0] for best in fill_blanks(self.model, self.tokenizer, text, 1, max_length)]
                perplexity = None
            else:
                guesses = []
                perplexity = next(scores).pseudo_perplexity
                perplexity = None if math.isnan(perplexity) else perplexity
            rows.append(
                {
                    "predicted": [guess.token for guess in guesses],
                    "probability": [guess.probability for guess in guesses],
                    "pseudo_perplexity": perplexity,
                }
            )
        return rows


predictor = FillMaskPredictor
