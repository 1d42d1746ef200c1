"""Fill-mask: filling of blanks and scoring of texts with the pretraining head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import torch

from bertline.foundation.errors import DataError
from bertline.inference.predictors.base import FileColumns, InputColumn, TaskPredictor, require_texts, row_ids
from bertline.modeling.bert import MaskedLanguageModel
from bertline.tasks.stored_rows import PlainRows
from bertline.tokenization.tokenizer import Tokenizer

MASK = "[MASK]"


class Guess(NamedTuple):
    """Predicted token for a blank."""

    token: str
    probability: float


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


def fill_blanks(
    model: MaskedLanguageModel | Any, tokenizer: Tokenizer, text: str, top_k: int, max_length: int
) -> list[list[Guess]]:
    """Return the `top_k` most likely tokens for each `[MASK]` of a text, most likely first.

    Raises:
        DataError: The text has no `[MASK]`, or more than `max_length` tokens.
    """
    ids = sequence_of(tokenizer, text, None, max_length)[0]
    blanks = [position for position, token in enumerate(ids) if token == tokenizer.mask_id]
    if not blanks:
        raise DataError(f"no {MASK} in {text!r}; write {MASK} where a word is missing.")
    device = next(model.parameters()).device
    input_ids = torch.tensor([ids], device=device)
    with torch.no_grad():
        output = model(input_ids, torch.zeros_like(input_ids), None, torch.tensor([blanks], device=device))
        probabilities = output.mlm_logits[0].softmax(-1)  # [blanks, V]
    special = torch.tensor(sorted(tokenizer.special_ids), device=device)
    best = probabilities.index_fill(1, special, -1.0).topk(min(top_k, tokenizer.vocab_size - len(special)))
    return [
        [Guess(*guess) for guess in zip(tokenizer.tokens(tokens), values, strict=True)]
        for tokens, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def sequence_of(tokenizer: Tokenizer, text: str, text_pair: str | None, max_length: int) -> tuple[list[int], list[int]]:
    """Encode one sequence as token ids and token types. `[MASK]` is encoded as the mask token.

    Raises:
        DataError: The sequence has more than `max_length` tokens; it is not truncated, which could lose a mask.
    """
    ids = [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]
    types = [0] * len(ids)
    if text_pair is not None:
        ids += [*tokenizer.encode(text_pair), tokenizer.sep_id]
        types += [1] * (len(ids) - len(types))
    if len(ids) > max_length:
        raise DataError(f"the text has {len(ids)} tokens; the model reads at most {max_length}. Shorten it.")
    return ids, types
