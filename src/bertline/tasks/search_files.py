"""Reading collections for search: what their files hold, and lines with their numbers."""

from __future__ import annotations

import gzip
import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bertline.foundation.errors import DataError
from bertline.tasks.decoded_files import gzip_damage_named

_SPACE = re.compile(r"\s+")
_MARKUP = re.compile(r"<[^<>]*>")


@dataclass(frozen=True, slots=True)
class RawDocument:
    """A document as its file has it."""

    where: str
    """File and line, for messages."""
    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class RawQuery:
    """A query as its file has it."""

    where: str
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """How relevant a document is to a query; 0 and below: judged and found not to be."""

    where: str
    query: str
    document: str
    relevance: int


def existing_file(folder: str, name: str) -> Path:
    """The path of a source's file; `NAME.gz` where only that is there.

    Raises:
        DataError: Neither is there.
    """
    path = Path(folder) / name
    packed = path.with_name(f"{path.name}.gz")
    if path.is_file() or not packed.is_file():
        if not path.is_file():
            raise DataError(f"{path} is not a file. Put the data there, or a link to it, or change the task's source.")
        return path
    return packed


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file, plain or `.gz`, from 1, without line ends and byte order mark.

    Raises:
        DataError: A line is not UTF-8, or the gzip file is torn.
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


def one_line(text: str) -> str:
    """The text with every run of white space as one space.

    >>> one_line("  a wing\\nin a  slipstream . ")
    'a wing in a slipstream .'
    """
    return _SPACE.sub(" ", text).strip()


def without_markup(text: str) -> str:
    """The text of an SGML element on one line: tags out, entities (`&amp;`) as their characters.

    >>> without_markup("lift <i>and</i> drag &lt; 1")
    'lift and drag < 1'
    """
    return one_line(html.unescape(_MARKUP.sub(" ", text)))


def relevance_of(text: str) -> int | None:
    """A relevance as a whole number (`1`, `-1`, `2.0`); None where it is none.

    >>> relevance_of("2"), relevance_of("1.0"), relevance_of("high"), relevance_of("nan")
    (2, 1, None, None)
    """
    try:
        value = float(text)
        return int(value) if value == int(value) else None
    except (ValueError, OverflowError):
        return None
