"""The lines of input files: encoding, bounded memory, and errors that name file, line and byte."""

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bertline.corpus.document import Dropped
from bertline.corpus.files import TORN, OnUndecodable, Part, fault, lines_before, opened, torn
from bertline.foundation.errors import DataError

# What the error handler makes of a byte that it cannot decode, and NUL, which no text has.
_NOT_TEXT = re.compile("[\x00\ud800-\udfff]")
# Limit for files without line ends, which could fill the memory; no real line or document is that
# long.
_MAX_LINE_CHARACTERS = 200_000_000


class Line(NamedTuple):  # made several times as fast as a frozen dataclass
    """A decoded line without its line end."""

    number: int
    """Line number in its part of a file, from 1."""
    text: str
    undecodable: bool
    """Whether the line has NUL bytes, or bytes that are invalid in the encoding."""


def read_lines(
    part: Part, encoding: str, policy: OnUndecodable, *, newline: str | None = None
) -> Iterator[Line | Dropped]:
    """Read the lines of a plain or compressed file (detected by its first bytes, not by its name), or of a range.

    With `skip`, a line that is no text is marked, for the caller to drop, and a file ends at the damage of its
    compressed data (`files/torn`) or where it cannot be split into lines (`files/undecodable`), which is dropped. With
    `fail`, each of them has a `fault` that names file, line and byte.

    Args:
        newline: As for `open`. If it is given, lines keep their ends.

    Raises:
        DataError: The encoding is unknown, or a line is over the limit.
    """
    codec, number = _known(encoding), 0
    try:
        with opened(part) as content, io.TextIOWrapper(content, codec, "surrogateescape", newline) as handle:
            while text := handle.readline(_MAX_LINE_CHARACTERS):
                number += 1
                if len(text) >= _MAX_LINE_CHARACTERS:
                    raise DataError(f"{part.path}: line {number} has over {_MAX_LINE_CHARACTERS:,} characters. Cut it.")
                if number == 1:  # a byte order mark is not part of the text
                    text = text.removeprefix("\ufeff")
                # To see that a text is ASCII is much faster than to search it.
                invalid = _NOT_TEXT.search(text) if "\0" in text or not text.isascii() else None
                if invalid is not None:
                    if policy == "fail":
                        wrong = _not_text(part, number, invalid, codec)
                        yield Dropped("lines/undecodable", f"{part.label}:{number}", text, fault=wrong)
                    text = _NOT_TEXT.sub("\ufffd", text)
                yield Line(number, text.rstrip("\r\n") if newline is None else text, invalid is not None)
    except UnicodeError as error:
        problem = f"not {encoding} text after line {number} ({error})"
        yield fault(part, policy, "files/undecodable", problem, "Set encoding to that of the file")
    except (*TORN, OSError) as error:
        yield torn(part, policy, error, f" after line {number}")


def lines_with_text(part: Part, lines: Iterable[Line | Dropped]) -> Iterator[Line | Dropped]:
    """Yield the lines that are not blank; a line with undecodable bytes is dropped."""
    for line in lines:
        if isinstance(line, Line) and line.undecodable:
            yield Dropped("documents/undecodable", f"{part.label}:{line.number}", line.text)
        elif isinstance(line, Dropped) or line.text.strip():
            yield line


def whole_file(path: Path) -> Part:
    """Return a local file as a part to read.

    Raises:
        DataError: There is no such file.
    """
    if not path.is_file():
        raise DataError(f"{path} is not a file. Put the data there, or a link to it, or change the path.")
    return Part(str(path), path.name, size=0)


def numbered_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yield line numbers, from 1, and lines of a local file; line feeds alone end a line, as texts may contain rarer
    separators.

    Raises:
        DataError: The file is missing, torn, or no text in the encoding; the message names file and line.
    """
    for item in read_lines(whole_file(path), encoding, "fail", newline="\n"):
        if isinstance(item, Line):
            yield item.number, item.text.rstrip("\r\n")
        elif item.fault is not None:
            raise DataError(" ".join(item.fault))


def _known(encoding: str) -> str:
    try:
        return codecs.lookup(encoding).name.removesuffix("-sig")
    except LookupError as error:
        raise DataError(f"encoding is {encoding!r}, which Python does not know; try utf-8.") from error


def _not_text(part: Part, number: int, invalid: re.Match[str], codec: str) -> tuple[str, str]:
    place = f"{part.path}:{lines_before(part) + number}:"
    if invalid[0] == "\0":
        return f"{place} a NUL byte at character {invalid.start() + 1}; text has none.", "Take it out."
    byte = f"byte 0x{ord(invalid[0]) - 0xDC00:02x} at character {invalid.start() + 1}"
    hint = "Set encoding to that of the file (latin-1, cp1252, utf-16 ...), or fix the line."
    return f"{place} {byte} is not {codec} text.", hint
