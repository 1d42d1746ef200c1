"""Sequence lengths that suit a text: a short one for most of training, and a long one where documents are long."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

_LENGTHS = (16, 32, 64, 128, 256, 512)
_CHARACTERS_A_TOKEN = 3.0  # of a vocabulary of a few thousand; a larger one has fewer tokens
_SPECIAL_TOKENS = 3
# Chinese, Japanese and Korean characters are tokens of their own, or nearly.
_OWN_TOKENS = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_TEXT_IN_WHOLE_SENTENCES = 0.9
_TEXT_IN_WHOLE_DOCUMENTS = 0.75


def suited_lengths(documents: Sequence[Sequence[str]], *, longest: int) -> tuple[int, int]:
    """Return the short and the long sequence length, in tokens, that suit a sample of documents.

    A short sequence holds two sentences of those that nine tenths of the text are in, so that a pair is not cut; a long
    one holds whole documents of those that three quarters of the text are in. Both are powers of two, and equal where
    documents are short.

    Args:
        documents: The sentences of each document of a sample.
        longest: Number of positions of the model.

    Example:
        >>> letters = [["We met in the old town again.", "It rained."]] * 9
        >>> suited_lengths(letters, longest=512)
        (32, 32)
        >>> suited_lengths([letter * 50 for letter in letters], longest=256)
        (32, 256)
    """
    sentences = [_num_tokens(sentence) for document in documents for sentence in document]
    whole = [sum(map(_num_tokens, document)) for document in documents]
    pair = 2 * _holding(sentences, _TEXT_IN_WHOLE_SENTENCES) + _SPECIAL_TOKENS
    short = _at_least(pair, longest)
    return short, max(short, _at_least(_holding(whole, _TEXT_IN_WHOLE_DOCUMENTS) + _SPECIAL_TOKENS, longest))


def _num_tokens(text: str) -> int:
    own = 0 if text.isascii() else len(_OWN_TOKENS.findall(text))
    return own + math.ceil((len(text) - own) / _CHARACTERS_A_TOKEN)


def _holding(sizes: list[int], share: float) -> int:
    """Return the size up to which parts hold a share of the text."""
    left = share * sum(sizes)
    for size in sorted(sizes):
        left -= size
        if left <= 0:
            return size
    return 0


def _at_least(tokens: int, longest: int) -> int:
    return min(longest, next((length for length in _LENGTHS if length >= tokens), _LENGTHS[-1]))
