"""Printable guesses for the blanks of a sentence."""

from __future__ import annotations

import re

from bertline.foundation.errors import DataError
from bertline.inference.model import LoadedModel

_BLANK = re.compile(r"_{2,}|\[MASK\]")


def filled(model: LoadedModel, sentence: str, *, num_guesses: int) -> str:
    """Return the guesses for each blank (`___` or `[MASK]`) of a sentence as text, one line per blank.

    Raises:
        DataError: The sentence has no blank.
    """
    if not _BLANK.search(sentence):
        raise DataError(f"no blank in {sentence!r}; write ___ where a word is missing")
    guesses = model.fill_mask(_BLANK.sub("[MASK]", sentence), top_k=num_guesses)
    return "\n".join("  " + "   ".join(f"{token} {prob:.0%}" for token, prob in blank) for blank in guesses)
