"""Tables of question, candidate answer and label, such as TrecQA: the rows of a question are what is re-ranked."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bertline.foundation.errors import DataError
from bertline.tasks.bad_rows import BadRow, BadRows
from bertline.tasks.decoded_files import decoded_text
from bertline.tasks.delimited_files import Delimiting, Fields, read_fields
from bertline.tasks.option_names import OptionNames
from bertline.tasks.search_files import one_line, relevance_of
from bertline.tasks.source_config import AnswersSourceConfig

_OPTIONS = OptionNames(encoding="source.encoding", quoting="source.quoting")


@dataclass(frozen=True, slots=True)
class Answer:
    """A candidate."""

    id: str
    """`train.csv:17`: the file and the line that its row begins on."""
    text: str
    relevance: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question with all its candidates, in the order of the file."""

    id: str
    """That of its first candidate."""
    text: str
    answers: list[Answer]


def read_answers(path: Path, config: AnswersSourceConfig, bad_rows: BadRows) -> list[Question]:
    """The questions of a `.csv` or `.tsv` file with a header, in the order in which they first stand there.

    With `quoting`, quoted fields may hold separators and line ends; a field that begins with two backquotes or holds
    quotes in its middle is text.

    Raises:
        DataError: Naming file and line: a missing column, a column of two names, unbalanced quotes, wrong encoding;
            and bad rows where they are errors.
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
