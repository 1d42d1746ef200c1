"""Words and sentences of user inputs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bertline.corpus.sentences import split_sentences
from bertline.foundation.errors import DataError
from bertline.inference.predictor import require_texts

# Word splitting common to tagged corpora: runs of letters and digits, including punctuation inside a word; every other
# punctuation mark is a word.
_WORD = re.compile(r"\w+(?:[-'’.@/&:]\w+)*|[^\w\s]")
Places = list[tuple[int, int]]
"""Start and end of each word in its text, in characters."""


def split_words(texts: Sequence[str] | Sequence[Sequence[str]]) -> list[tuple[str, Places]]:
    """Return each text with the places of its words; for a list of words, the words joined by spaces.

    Raises:
        DataError: `texts` is a single string, or a list holds something other than strings.
    """
    if isinstance(texts, str):
        raise DataError(f"texts is one string; expected a list of strings, such as [{texts[:30]!r}].")
    found: list[tuple[str, Places]] = []
    for index, value in enumerate(texts):
        if isinstance(value, str):
            found.append((value, [match.span() for match in _WORD.finditer(value)]))
        else:
            words = require_texts(value, f"texts[{index}]")
            found.append((" ".join(words), _places_of(words)))
    return found


def _places_of(words: list[str]) -> Places:
    places = []
    start = 0
    for word in words:
        places.append((start, start + len(word)))
        start += len(word) + 1
    return places


def split_documents(texts: Sequence[str] | Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the sentences of each document, given as text or as a list of sentences.

    Raises:
        DataError: `texts` is a single string, a list holds something other than strings, or a document has no sentence.
    """
    if isinstance(texts, str):
        raise DataError(f"texts is one string; expected a list of strings, such as [{texts[:30]!r}].")
    return [_sentences(value, index) for index, value in enumerate(texts)]


def _sentences(value: Any, index: int) -> list[str]:
    if isinstance(value, str):
        sentences = [sentence for line in value.splitlines() for sentence in split_sentences(line)]
    else:
        sentences = [sentence.strip() for sentence in require_texts(value, f"texts[{index}]") if sentence.strip()]
    if not sentences:
        raise DataError(f"texts[{index}] has no sentence; leave empty documents out.")
    return sentences
