"""Base classes of predictors, the input columns of prediction files, and words and sentences of user inputs."""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import torch
from torch import nn

from bertline.corpus.sentences import split_sentences
from bertline.finetuning.task_file import FinishedTask
from bertline.finetuning.task_kind import Calibration, TaskKind
from bertline.finetuning.word_tagging import decided
from bertline.finetuning.word_windows import token_ids_in_rows
from bertline.foundation.errors import DataError
from bertline.kinds.registry import kind_part
from bertline.tasks.stored_rows import StoredRows, TaggedRows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine, Ranks


@dataclass(frozen=True, kw_only=True, slots=True)
class FileColumns:
    """Columns of an input file; each kind of task reads some of them. `.txt` files have only `text`.

    A column is given by name, or by number from 0 if the file has no header.
    """

    text: str | int = "text"
    text_pair: str | int | None = None
    """Column of the second text, for pair tasks."""
    question: str | int = "question"
    context: str | int = "context"
    query: str | int = "query"
    candidates: str | int = "candidates"
    """Column with a list of texts (in CSV, as JSON)."""


@dataclass(frozen=True, slots=True)
class InputColumn:
    """Input column of a task."""

    name: str | int
    holds: str
    """Type of the values: `text`, `texts` (a list) or `text or texts`."""
    may_be_empty: bool = True


# Tokens per batch, padding included. CPU: one layer fits the cache of a core. GPU: keeps it busy (not measured).
_TOKENS_ON_CPU = 512
_TOKENS_ELSEWHERE = 1 << 14


class RowPredictor(ABC):
    """Prediction of columns for the rows of a file or of a request."""

    tokenizer: Tokenizer
    num_cut = 0
    """Number of rows so far that were truncated to the model's maximum length."""

    def for_thread(self) -> Self:
        """Return a copy for another thread, with shared weights and its own count of truncated inputs."""
        copied = copy.copy(self)
        # Encoding temporarily changes a setting of the tokenizer, so each thread has its own.
        copied.tokenizer = self.tokenizer.copy()
        copied.num_cut = 0
        return copied

    @abstractmethod
    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        """Return the columns to read from a file, in the order of the arguments of `file_outputs`."""

    @abstractmethod
    def output_schema(self) -> pa.Schema:
        """Return the schema of the columns that are added to those of the input."""

    @abstractmethod
    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        """Predict the added columns of some rows."""


class TaskPredictor(RowPredictor):
    """A fine-tuned model with its task, for prediction."""

    num_probabilities: int | None = None
    """Number of labels that a classifier lists in a file with their probabilities; None lists all."""

    def __init__(
        self, kind: TaskKind[Any, Any, Any], calibration: Calibration, model: nn.Module, tokenizer: Tokenizer
    ) -> None:
        self.kind: Any = kind
        self.calibration = calibration
        self.model = model
        self.tokenizer = tokenizer
        # As in evaluation, but always in fp32, so that predictions do not depend on the machine.
        device: torch.device = next(model.parameters()).device
        self.machine = Machine(
            device=device,
            precision="fp32",
            compile=False,
            ranks=Ranks(),
            scoring_tokens=_TOKENS_ON_CPU if device.type == "cpu" else _TOKENS_ELSEWHERE,
        )

    @abstractmethod
    def predict(self, *inputs: Any) -> list[Any]:
        """Return the prediction for each input, in order."""

    def predictions(self, rows: StoredRows) -> Any:
        """Encode rows, count truncated ones, and return the result of `TaskKind.predict`."""
        encoded = self.kind.encode(rows, self.tokenizer)
        self.num_cut += self.kind.num_cut(encoded)
        return self.kind.predict(self.model, encoded, self.machine)


def row_ids(count: int) -> list[str]:
    """Return ids for `count` rows without ids."""
    return [str(number) for number in range(count)]


def require_several(values: Any, name: str) -> None:
    """Raise a `DataError` if the values are a single string."""
    if isinstance(values, str):
        raise DataError(f"{name} is one string; expected a list of strings, such as [{values[:30]!r}].")


def require_texts(values: Any, name: str) -> list[str]:
    """Return the values as a list of strings.

    Raises:
        DataError: `values` is a single string, or contains something other than strings.
    """
    require_several(values, name)
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise DataError(f"{name}[{index}] is {value!r}; expected a string.")
    return list(values)


def require_lists(values: Any, name: str) -> list[list[str]]:
    """Return the values as a list of lists of strings.

    Raises:
        DataError: They are not lists of strings.
    """
    if isinstance(values, str):
        raise DataError(f"{name} is one string; expected a list of lists of strings.")
    return [require_texts(value, f"{name}[{index}]") for index, value in enumerate(values)]


def require_pairs(first: Any, second: Any, names: tuple[str, str]) -> tuple[list[str], list[str]]:
    """Return both values as lists of strings of equal length.

    Raises:
        DataError: They are not lists of strings, or their lengths differ.
    """
    one, other = require_texts(first, names[0]), require_texts(second, names[1])
    if len(one) != len(other):
        raise DataError(f"{len(one)} {names[0]} and {len(other)} {names[1]}; expected one of each for each pair.")
    return one, other


def predictor_of(finished: FinishedTask, model: nn.Module, tokenizer: Tokenizer) -> TaskPredictor:
    """Wrap a fine-tuned model for prediction on user inputs.

    `kinds/NAME/serving.py` has `predictor(kind, calibration, model, tokenizer) -> TaskPredictor`, often the class.
    """
    serving = kind_part(finished.kind.config.kind, "serving")
    predictor: TaskPredictor = serving.predictor(finished.kind, finished.calibration, model, tokenizer)
    return predictor


class TextPredictor(TaskPredictor):
    """Base class of tasks whose inputs are texts or text pairs."""

    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        inputs = [InputColumn(columns.text, "text")]
        return inputs if columns.text_pair is None else [*inputs, InputColumn(columns.text_pair, "text")]

    def texts_and_pairs(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None
    ) -> tuple[list[str], list[str] | None]:
        """Validate the texts and the optional second texts."""
        if text_pairs is None:
            return require_texts(texts, "texts"), None
        return require_pairs(texts, text_pairs, ("texts", "text_pairs"))


# Words and sentences of user inputs, and predictors for the words.

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
    texts_and_places: list[tuple[str, Places]] = []
    for index, value in enumerate(texts):
        if isinstance(value, str):
            places = [match.span() for match in _WORD.finditer(value)]
            (token_ids,) = token_ids_in_rows([[value[start:end] for start, end in places]], tokenizer)
            texts_and_places.append((value, [place for place, ids in zip(places, token_ids, strict=True) if ids]))
        else:
            words = require_texts(value, f"texts[{index}]")
            texts_and_places.append((" ".join(words), _places_of(words)))
    return texts_and_places


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
        tags = decided(self.predictions(rows), self.calibration)
        return [
            self.of_tags(text, places, [self.kind.labels[number] for number in numbers], scores.tolist())
            for (text, places), numbers, scores in zip(read, tags.labels, tags.word_confidences, strict=True)
        ]

    @abstractmethod
    def of_tags(self, text: str, places: Places, tags: list[str], scores: list[float]) -> list[Any]:
        """Return the prediction of a text from the tag of each word and its probability."""

    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        """See `TaskPredictor.file_inputs`."""
        return [InputColumn(columns.text, "text or texts")]
