"""Words and sentences of user inputs, and predictors for the words."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from bertline.corpus.sentences import split_sentences
from bertline.finetuning.word_tagging import decided
from bertline.finetuning.word_windows import token_ids_in_rows
from bertline.foundation.errors import DataError
from bertline.inference.predictor import (
    FileColumns,
    InputColumn,
    TaskPredictor,
    require_several,
    require_texts,
)
from bertline.tasks.stored_rows import TaggedRows
from bertline.tokenization.tokenizer import Tokenizer

# Word splitting common to tagged corpora: runs of letters and digits, including punctuation inside a word; every other
# punctuation mark is a word.
_WORD = re.compile(r"\w+(?:[-'’.@/&:]\w+)*|[^\w\s]")
Places = list[tuple[int, int]]
"""Start and end of each word in its text, in characters."""


def split_words(texts: Sequence[str] | Sequence[Sequence[str]], tokenizer: Tokenizer) -> list[tuple[str, Places]]:
    """Return each text with the places of its words; for a list of words, the words joined by spaces.

    What the tokenizer's cleaning removes from a text (control characters, for example) is none of its words.

    Raises:
        DataError: `texts` is a single string, or a list holds something other than strings.
    """
    require_several(texts, "texts")
    found: list[tuple[str, Places]] = []
    for index, value in enumerate(texts):
        if isinstance(value, str):
            places = [match.span() for match in _WORD.finditer(value)]
            (token_ids,) = token_ids_in_rows([[value[start:end] for start, end in places]], tokenizer)
            found.append((value, [place for place, ids in zip(places, token_ids, strict=True) if ids]))
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
    require_several(texts, "texts")
    return [_sentences(value, index) for index, value in enumerate(texts)]


def _sentences(value: Any, index: int) -> list[str]:
    if isinstance(value, str):
        sentences = [sentence for line in value.splitlines() for sentence in split_sentences(line)]
    else:
        sentences = [sentence.strip() for sentence in require_texts(value, f"texts[{index}]") if sentence.strip()]
    if not sentences:
        raise DataError(f"texts[{index}] has no sentence; leave empty documents out.")
    return sentences


class WordsPredictor(TaskPredictor):
    """Prediction from a tag for each word."""

    def predict(self, texts: Sequence[str] | Sequence[Sequence[str]]) -> list[Any]:  # type: ignore[override]
        """Return the prediction of each text, in text order.

        Args:
            texts: Texts, which are split into words at white space and punctuation; or lists of words, which are used
                unchanged, as in evaluation.

        Raises:
            DataError: See `split_words`; or a word of a list has no token.
        """
        read = split_words(texts, self.tokenizer)
        words = [[text[start:end] for start, end in places] for text, places in read]
        if not any(words):
            return [[] for _ in read]
        unknown = [[self.kind.labels[0]] * len(of_text) for of_text in words]
        names = [f"texts[{index}]" for index in range(len(read))]
        rows = TaggedRows(names, names, words, unknown)
        found = decided(self.predictions(rows), self.calibration)
        return [
            self.of_tags(text, places, [self.kind.labels[number] for number in numbers], scores.tolist())
            for (text, places), numbers, scores in zip(read, found.labels, found.word_confidences, strict=True)
        ]

    @abstractmethod
    def of_tags(self, text: str, places: Places, tags: list[str], scores: list[float]) -> list[Any]:
        """Return the prediction of a text from the tag of each word and its probability."""

    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        """See `TaskPredictor.file_inputs`."""
        return [InputColumn(columns.text, "text or texts")]
