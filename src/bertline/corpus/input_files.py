"""Finding input files, and reading their lines with bounded memory and errors that name file and line."""

from __future__ import annotations

import codecs
import glob
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Literal

from bertline.foundation.errors import ConfigError, DataError
from bertline.foundation.progress import warn

_GZIP_MAGIC = b"\x1f\x8b"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")  # what `surrogateescape` makes of a byte it cannot decode
# A line up to this length may be wrapped and is joined with the next one; a longer line ends a paragraph.
_MAX_WRAPPED_CHARACTERS = 100
# Limit for files without line ends, which could fill the memory; no real line or document is that long.
_MAX_LINE_CHARACTERS = 200_000_000


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to read."""

    path: Path
    name: str
    """Path relative to the configured path, with `/` as separator: the same on every machine."""


@dataclass(frozen=True, slots=True)
class Line:
    """A decoded line without its line end."""

    number: int
    """Line number, from 1."""
    text: str
    undecodable: bool
    """Whether the line has bytes that are invalid in the encoding."""


def find_files(place: str, suffixes: tuple[str, ...], dropped: Counter[str]) -> list[InputFile]:
    """Find the files of a folder (searched recursively) or a glob, or a single file.

    Args:
        place: The setting `corpus.path`.
        suffixes: File name suffixes to include from a folder, each optionally followed by `.gz`; empty includes all.
        dropped: Counter; files of a folder with other suffixes are counted under `files/other_suffix`.

    Returns:
        The files sorted by name; hidden files and folders inside a folder are left out.

    Raises:
        DataError: No file was found.
    """
    root = Path(place)
    if root.is_file():
        return [InputFile(root, root.name)]
    if root.is_dir():
        found = [path for path in root.rglob("*") if path.is_file()]
        names = {path.relative_to(root).as_posix(): path for path in found}
        names = {name: path for name, path in names.items() if not any(part[0] == "." for part in name.split("/"))}
    else:
        fixed = Path(*takewhile(lambda part: not glob.has_magic(part), root.parts[:-1]))
        matched = [Path(path) for path in glob.glob(place, recursive=True)]  # noqa: PTH207 (Path.glob refuses absolute)
        names = {path.relative_to(fixed).as_posix(): path for path in matched if path.is_file()}
        suffixes = ()
    wanted = {
        name: path
        for name, path in names.items()
        if not suffixes or name.lower().removesuffix(".gz").endswith(suffixes)
    }
    dropped["files/other_suffix"] += len(names) - len(wanted)
    if not wanted:
        expected = f"files ending in {' or '.join(suffixes)} (or with .gz after it)" if suffixes else "files"
        others = f"; it holds {len(names)} other files, such as {min(names)}" if names else ""
        state = "matches nothing" if not root.is_dir() else f"holds no {expected}{others}"
        raise DataError(f"corpus.path: {place!r} (in {Path.cwd()}) {state}. Put your text there, or name its place.")
    return [InputFile(wanted[name], name) for name in sorted(wanted)]


def read_lines(
    file: InputFile, encoding: str, on_undecodable: Literal["fail", "skip"], dropped: Counter[str]
) -> Iterator[Line]:
    """Read the lines of a plain or gzip file (detected by its first bytes, not by its name).

    With `skip`, an undecodable line is marked, for the caller to count. A truncated or corrupted gzip file ends at the
    damage and is counted under `files/torn`; a file whose text cannot be split into lines ends there and is counted
    under `files/undecodable`.

    Raises:
        DataError: With `fail`, a line cannot be decoded or a gzip file is damaged. Always, if the file cannot be read
            or a line is too long.
        ConfigError: The encoding is unknown.
    """
    number = 0
    named = False
    try:
        with _open(file, encoding) as handle:
            while text := handle.readline(_MAX_LINE_CHARACTERS):
                number += 1
                if len(text) >= _MAX_LINE_CHARACTERS:
                    raise DataError(f"{file.path}:{number}: a line of over {_MAX_LINE_CHARACTERS:,} characters.")
                undecodable = None if text.isascii() else _LONE_SURROGATES.search(text)
                if undecodable and on_undecodable == "fail":
                    raise DataError(_undecodable(file, number, undecodable, encoding))
                if undecodable and not named:
                    named = True
                    warn(
                        f"{file.path}:{number} is not {encoding} text; such records of this file are left out, counted"
                    )
                yield Line(number, text.rstrip("\r\n"), undecodable is not None)
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeError) as error:
        if isinstance(error, UnicodeError):
            reason, problem = "undecodable", f"not {encoding} text"
            way = "corpus.on_undecodable=skip to count and leave out what cannot be read."
            fix = f"Set corpus.encoding to the file's encoding, or {way}"
        else:
            reason, problem = "torn", "the gzip data is torn"
            fix = "Copy the file again, or set corpus.on_undecodable=skip to keep what can be read and count the rest."
        if on_undecodable == "fail":
            raise DataError(f"{file.path}: {problem} after line {number} ({error}). {fix}") from error
        dropped[f"files/{reason}"] += 1
        warn(f"{file.path}: {problem} after line {number}; the rest of it is left out")
    except OSError as error:
        raise DataError(f"{file.path} cannot be read: {error.strerror or error}.") from error


def _open(file: InputFile, encoding: str) -> io.TextIOWrapper:
    try:
        name = codecs.lookup(encoding).name
    except LookupError as error:
        raise ConfigError(f"corpus.encoding is {encoding!r}, which Python does not know; try utf-8.") from error
    with file.path.open("rb") as handle:
        compressed = handle.read(2) == _GZIP_MAGIC
    # A byte-order mark is not part of the text.
    name = "utf-8-sig" if name == "utf-8" else name
    if compressed:
        return gzip.open(file.path, "rt", encoding=name, errors="surrogateescape")
    return file.path.open(encoding=name, errors="surrogateescape")


def _undecodable(file: InputFile, number: int, found: re.Match[str], encoding: str) -> str:
    with file.path.open("rb") as handle:
        utf16 = handle.read(2) in _UTF16_MARKS
    hint = (
        "It begins with a UTF-16 mark: try corpus.encoding=utf-16" if utf16 else "Set corpus.encoding to its encoding"
    )
    return (
        f"{file.path}:{number}: byte 0x{ord(found[0]) - 0xDC00:02x} at character {found.start() + 1} is not {encoding} "
        f"text. {hint}, or corpus.on_undecodable=skip to count such records and leave them out."
    )


def paragraphs_of(lines: Iterable[str]) -> Iterator[str]:
    """Join wrapped lines to paragraphs; a blank line, or a line too long to be wrapped, ends a paragraph.

    Example:
        >>> list(paragraphs_of(["It was", "late.", "", "x" * 200, "Next."]))[0]
        'It was late.'
        >>> len(list(paragraphs_of(["It was", "late.", "", "x" * 200, "Next."])))
        3
    """
    waiting: list[str] = []
    for line in lines:
        text = line.strip()
        if text:
            waiting.append(text)
        if waiting and (not text or len(text) > _MAX_WRAPPED_CHARACTERS):
            yield " ".join(waiting)
            waiting = []
    if waiting:
        yield " ".join(waiting)


def counted(lines: Iterator[Line], file: InputFile, dropped: Counter[str]) -> Iterator[Line]:
    """Pass on the lines of a file; a file of blank lines only is counted under `files/empty`."""
    blank = True
    for line in lines:
        blank = blank and not line.text.strip()
        yield line
    if blank:
        dropped["files/empty"] += 1
