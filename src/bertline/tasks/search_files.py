"""Shared parts of the readers of search collections: records, and lines with their numbers."""

from __future__ import annotations

import gzip
import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bertline.foundation.errors import DataError
from bertline.tasks.bad_rows import BadRow, BadRows
from bertline.tasks.decoded_files import gzip_damage_named

_SPACE = re.compile(r"\s+")
_MARKUP = re.compile(r"<[^<>]*>")


@dataclass(frozen=True, slots=True)
class RawDocument:
    """A document as read from its file."""

    where: str
    """File and line, for messages."""
    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class RawQuery:
    """A query as read from its file."""

    where: str
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """Relevance of a document to a query; 0 or below means judged not relevant."""

    where: str
    query: str
    document: str
    relevance: int


def existing_file(folder: str, name: str) -> Path:
    """Return the path of a source's file, or of `NAME.gz` if only that exists.

    Raises:
        DataError: Neither file exists.
    """
    path = Path(folder) / name
    packed = path.with_name(f"{path.name}.gz")
    if path.is_file() or not packed.is_file():
        if not path.is_file():
            raise DataError(f"{path} is not a file. Put the data there, or a link to it, or change the task's source.")
        return path
    return packed


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line numbers, from 1, and lines of a UTF-8 file, plain or `.gz`, without line ends and byte order mark.

    Raises:
        DataError: A line is not UTF-8, or the gzip file is truncated or corrupt.
    """
    number = 0
    try:
        with gzip_damage_named(path), gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as handle:
            for number, line in enumerate(handle, start=1):
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}:{number} is not UTF-8 text. Convert the file (iconv -f latin1 -t utf-8, say, for an old one)."
        ) from error


def read_judgements(
    path: Path, judged: Callable[[int, str], tuple[str, str, int | None] | None], expected: str, bad: BadRows
) -> Iterator[Judgement]:
    """Read a file with one judgement per line; blank lines are skipped.

    Args:
        path: The file.
        judged: Returns query, document and relevance of a numbered line, relevance None if the line is malformed; or
            None for a line that is no judgement, such as a header.
        expected: What a line should have, for the message.
        bad: Collects malformed lines.
    """
    for number, line in numbered_lines(path):
        found = judged(number, line) if line.strip() else None
        if found is None:
            continue
        query, document, relevance = found
        if relevance is None:
            problem = f"{path}:{number} is {line[:80]!r}; expected {expected}."
            bad.found(BadRow("malformed_judgement", problem))
        else:
            yield Judgement(f"{path}:{number}", query, document, relevance)


def one_line(text: str) -> str:
    """Replace every run of white space by one space, and strip both ends.

    >>> one_line("  a wing\\nin a  slipstream . ")
    'a wing in a slipstream .'
    """
    return _SPACE.sub(" ", text).strip()


def without_markup(text: str) -> str:
    """Return the text of an SGML element on one line, without tags and with entities (`&amp;`) decoded.

    >>> without_markup("lift <i>and</i> drag &lt; 1")
    'lift and drag < 1'
    """
    return one_line(html.unescape(_MARKUP.sub(" ", text)))


def relevance_of(text: str) -> int | None:
    """Parse a relevance as an integer (`1`, `-1`, `2.0`); None if it is not one.

    >>> relevance_of("2"), relevance_of("1.0"), relevance_of("high"), relevance_of("nan")
    (2, 1, None, None)
    """
    try:
        value = float(text)
        return int(value) if value == int(value) else None
    except (ValueError, OverflowError):
        return None
