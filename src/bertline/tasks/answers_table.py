"""Tables of question, candidate answer and label, such as TrecQA. The rows of a question are its candidates."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bertline.foundation.errors import DataError
from bertline.tasks.bad_rows import BadRow, BadRows
from bertline.tasks.decoded_files import OptionNames, decoded_text
from bertline.tasks.delimited_files import Delimiting, Fields, read_fields
from bertline.tasks.search_files import one_line, relevance_of
from bertline.tasks.source_config import AnswersSourceConfig

_OPTIONS = OptionNames(encoding="source.encoding", quoting="source.quoting")


@dataclass(frozen=True, slots=True)
class Answer:
    """A candidate answer."""

    id: str
    """File and first line of the row, such as `train.csv:17`."""
    text: str
    relevance: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question with all its candidates, in file order."""

    id: str
    """Id of its first candidate."""
    text: str
    answers: list[Answer]


def read_answers(path: Path, config: AnswersSourceConfig, bad_rows: BadRows) -> list[Question]:
    """Read the questions of a `.csv` or `.tsv` file with a header, in the order of their first row.

    With `quoting`, quoted fields may contain separators and line breaks. A field that begins with two backquotes or has
    quotes only in its middle is plain text.

    Raises:
        DataError: A column is missing or named twice, quotes are unbalanced, the encoding is wrong, or a row is invalid
            and invalid rows are errors. The message names the file and line.
    """
    questions: dict[str, Question] = {}
    for line, fields in _rows(path, config, bad_rows):
        where = f"{path}:{line}"
        query, text = one_line(fields[config.query_column]), one_line(fields[config.text_column])
        relevance = relevance_of(fields[config.label_column])
        if not query or not text:
            column = config.text_column if query else config.query_column
            bad_rows.found(BadRow("empty_text", f"{where}: the text in column {column!r} is empty."))
        elif relevance is None:
            found = fields[config.label_column]
            bad_rows.found(
                BadRow("bad_label", f"{where}: the label is {found!r}; expected 0, 1 or another whole number.")
            )
        else:
            answer = Answer(f"{path.name}:{line}", text, relevance)
            questions.setdefault(query, Question(answer.id, query, [])).answers.append(answer)
    if not questions:
        raise DataError(f"{path} has no rows that can be used.")
    return list(questions.values())


def _rows(path: Path, config: AnswersSourceConfig, bad_rows: BadRows) -> Iterator[Fields]:
    delimiting = Delimiting(
        separator="\t" if ".tsv" in path.suffixes else ",",
        header=True,
        quoting=config.quoting,
        max_fields=None,
        extra_fields="error",
        options=_OPTIONS,
    )
    text = io.StringIO(decoded_text(path, config.encoding), newline="" if config.quoting else "\n")
    for row in read_fields(path, text, delimiting, bad_rows):
        _check_columns(path, row, config)
        yield row


def _check_columns(path: Path, row: Fields, config: AnswersSourceConfig) -> None:
    for option in ("query_column", "text_column", "label_column"):
        if getattr(config, option) not in row.values:
            raise DataError(
                f"{path} has no column {getattr(config, option)!r} (source.{option}). It has "
                f"{', '.join(map(str, row.values))}."
            )
