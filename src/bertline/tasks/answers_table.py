"""Tables of question, candidate answer and label, such as TrecQA: the rows of a question are what is re-ranked."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bertline.foundation.errors import DataError
from bertline.tasks.bad_rows import BadRow, BadRows
from bertline.tasks.decoded_files import decoded_text
from bertline.tasks.search_files import one_line, relevance_of
from bertline.tasks.source_config import AnswersSourceConfig


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

    Quoted fields may hold separators and line ends; a field that begins with two backquotes or holds quotes in its
    middle is text.

    Raises:
        DataError: Naming file and line: a missing column, unbalanced quotes, wrong encoding; and bad rows where they
            are errors.
    """
    questions: dict[str, Question] = {}
    for line, fields in _rows(path, config):
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


def _rows(path: Path, config: AnswersSourceConfig) -> Iterator[tuple[int, dict[str, str]]]:
    csv.field_size_limit(1 << 30)
    text = io.StringIO(decoded_text(path, config.encoding), newline="")
    reader = csv.reader(text, delimiter="\t" if ".tsv" in path.suffixes else ",", strict=True)
    header: list[str] | None = None
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise DataError(
                f"{path}:{line}: {error}. A quote at the beginning of a field opens it and has to be closed; a quote "
                "inside of a quoted field is written twice. Mend the row."
            ) from error
        if fields is None:
            return
        if not fields:
            continue
        if header is None:
            header = [field.strip() for field in fields]
            _check_header(path, header, config)
        elif len(fields) != len(header):
            raise DataError(f"{path}:{line} has {len(fields)} fields, the header has {len(header)}. Mend the row.")
        else:
            yield line, dict(zip(header, fields, strict=True))


def _check_header(path: Path, header: list[str], config: AnswersSourceConfig) -> None:
    for option in ("query_column", "text_column", "label_column"):
        if getattr(config, option) not in header:
            raise DataError(
                f"{path} has no column {getattr(config, option)!r} (source.{option}). It has {', '.join(header)}."
            )
