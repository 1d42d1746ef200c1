"""Texts to token ids for use, exactly as fine-tuning encodes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertline.finetuning.encoding import EncodedRows, encode_rows
from bertline.foundation.errors import DataError
from bertline.tasks.storage import Rows
from bertline.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class EncodedTexts:
    """Texts as the model takes them."""

    rows: EncodedRows
    num_truncated: int
    """Texts (or pairs) that lost tokens because they are longer than the model reads."""


def encode_texts(
    texts: Sequence[str], text_pairs: Sequence[str] | None, tokenizer: Tokenizer, *, max_length: int
) -> EncodedTexts:
    """Encode texts, or pairs of texts, each cut to `max_length` tokens; `[MASK]` in a text is a word like any other.

    Raises:
        DataError: A text is not a string, or there are more or fewer pairs than texts.
    """
    _require_strings(texts, "texts")
    if text_pairs is not None:
        _require_strings(text_pairs, "text_pairs")
        if len(texts) != len(text_pairs):
            raise DataError(f"{len(texts)} texts and {len(text_pairs)} text_pairs; expected one of each for each pair.")
    pairs = None if text_pairs is None else list(text_pairs)
    unlabelled = np.zeros(len(texts), dtype=np.int64)
    rows = encode_rows(Rows([""] * len(texts), list(texts), pairs, unlabelled), tokenizer, max_length=max_length)
    # Only a sequence that fills all the room can have lost tokens; the few of them are counted again whole.
    full = np.flatnonzero(rows.lengths == max_length).tolist()
    lengths = _whole_lengths([texts[i] for i in full], tokenizer, num_special=2)
    if pairs is not None:
        lengths = lengths + _whole_lengths([pairs[i] for i in full], tokenizer, num_special=1)
    return EncodedTexts(rows, int((lengths > max_length).sum()))


def _whole_lengths(texts: list[str], tokenizer: Tokenizer, *, num_special: int) -> np.ndarray:
    return np.array([len(ids) + num_special for ids in tokenizer.encode_literally(texts)], dtype=np.int64)


def _require_strings(texts: Sequence[str], name: str) -> None:
    if isinstance(texts, str):
        raise DataError(f"{name} is one string; expected a list of strings, such as [{texts[:30]!r}].")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"{name}[{index}] is {text!r}; expected a string.")
