"""Reading the lines of input files, with bounded memory and errors that name file, line and byte."""

from __future__ import annotations

import codecs
import io
import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from bertline.corpus.compression import TORN, archive_kind, compression_of, is_torn, text_stream
from bertline.corpus.encodings import AUTO, LineDecoder, detect_encoding
from bertline.corpus.faults import FileFaults, OnUndecodable
from bertline.corpus.input_files import InputFile
from bertline.corpus.left_out import leave_out
from bertline.corpus.quality.changes import READ_AS, REPLACED, SECOND_ENCODING
from bertline.foundation.errors import ConfigError, DataError
from bertline.foundation.progress import of_kind, warn

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# What the error handler makes of a byte that it cannot decode, and NUL, which no text has.
_NOT_TEXT = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\ufffd"
# Limit for files without line ends, which could fill the memory; no real line or document is that long.
_MAX_LINE_CHARACTERS = 200_000_000
_SKIPPED_CHARACTERS = 1 << 20


class Line(NamedTuple):  # made several times as fast as a frozen dataclass
    """A decoded line without its line end."""

    number: int
    """Line number, from 1."""
    text: str
    undecodable: bool
    """Whether the line has NUL bytes or bytes that are invalid in the encoding, or is too long to be read."""


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Stand in for bytes that cannot be decoded; unlike `surrogateescape`, also for half a UTF-16 character."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udcff", error.end


codecs.register_error("bertline.escape", _escape)
_ERRORS = {"fail": "surrogateescape", "skip": "surrogateescape", "replace": "bertline.escape"}


def read_lines(file: InputFile, encoding: str, on_undecodable: OnUndecodable, dropped: Counter[str]) -> Iterator[Line]:
    """Read the lines of a plain or compressed file (detected by its first bytes, not by its name).

    With `skip`, a line that is no text is marked, for the caller to count; with `replace`, what is no text in it
    becomes U+FFFD, and the line is counted under `lines/replaced`. With both, whatever else is wrong is counted: a file
    ends at the damage of its compressed data (`files/torn`) or where it cannot be split into lines
    (`files/undecodable`, as a file without a detectable encoding); an archive (`files/archive`), a line over the limit
    (`lines/too_long`) and a file that changes while it is read (`files/changed`).

    Args:
        file: The file.
        encoding: Name of the encoding, or `auto` to detect that of each file; files that are not UTF-8 are then counted
            under `encodings/NAME`, and lines that have another encoding than their file are decoded from it and
            counted under `lines/read_in_a_second_encoding`.
        on_undecodable: What happens to input that is not text.
        dropped: Counter.

    Raises:
        DataError: With `fail`, any of the above; the message names file, line and byte. Always, if the file cannot be
            read.
        ConfigError: The encoding is unknown.
    """
    faults = _Faults(file, on_undecodable, dropped)
    number = 0
    try:
        codec = _codec_of(file, encoding, faults)
        if codec is None:
            return
        name, errors = codec.removesuffix("-sig"), _ERRORS[on_undecodable]
        by_line = LineDecoder.suits(codec) if encoding == AUTO else LineDecoder.never_looks_like_utf8(codec)
        decode = LineDecoder(file.path, name, errors) if by_line else None
        stream = (codec, errors) if decode is None else ("utf-8-sig", "surrogateescape")
        with text_stream(file.path, *stream) as handle:
            before = os.fstat(handle.fileno())
            while text := handle.readline(_MAX_LINE_CHARACTERS):
                number += 1
                undecodable = False
                if decode is not None and not text.isascii():
                    text, is_second = decode(text)
                    if is_second:
                        faults.note_second(number, name, decode.second)
                if not _is_text(text) and (found := _NOT_TEXT.search(text)):
                    if faults.is_archive(number):
                        return
                    undecodable = faults.is_marked(number, found, encoding, codec)
                    text = _NOT_TEXT.sub(_REPLACEMENT, text)
                if len(text) >= _MAX_LINE_CHARACTERS:
                    undecodable = faults.is_too_long(number)
                    text = _past_line_end(handle, text)
                yield Line(number, text.rstrip("\r\n"), undecodable)
            after = os.fstat(handle.fileno())
        faults.is_changed(before, after, f"line {number}")
    except UnicodeError as error:
        problem = f"not {encoding} text after line {number} ({error})"
        faults.count("files/undecodable", problem, "Set corpus.encoding to the file's encoding")
    except (*TORN, OSError) as error:
        if not is_torn(error):
            assert isinstance(error, OSError)
            raise DataError(f"{file.path} cannot be read: {error.strerror or error}.") from error
        problem = f"the {compression_of(file.path)} data is torn after line {number} ({error})"
        faults.count("files/torn", problem, "Copy the file again")


def _is_text(text: str) -> bool:
    """Return whether `_NOT_TEXT` matches nowhere; encoding to UTF-8, which refuses surrogates, tells it faster."""
    if "\0" in text:
        return False
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


class _Faults(FileFaults):
    """What is wrong with a file of lines, or with a line of it."""

    _line_named = _second_named = False

    def is_marked(self, number: int, found: re.Match[str], encoding: str, codec: str) -> bool:
        """Return whether a line that is not text is to be left out; False: it is counted and stays.

        Raises:
            DataError: With `fail`.
        """
        if self._policy == "fail":
            detected = encoding == AUTO
            said = self._not_text(number, found, codec.removesuffix("-sig") if detected else encoding, detected)
            raise DataError(said)
        if not self._line_named:
            self._line_named = True
            fate = "is replaced" if self._policy == "replace" else "such records of this file are left out, counted"
            hint = "" if encoding == AUTO else " (corpus.encoding=auto detects the encoding of each file)"
            said = f"{self._file.path}:{number} is not {codec.removesuffix('-sig')} text; {fate}{hint}"
            warn(said, extra=of_kind("text in another encoding"))
        if self._policy == "replace":
            self._dropped[REPLACED] += 1
        return self._policy == "skip"

    def is_too_long(self, number: int) -> bool:
        """Count a line over the limit; return whether the record that it belongs to is to be left out.

        Raises:
            DataError: With `fail`.
        """
        problem = f"line {number} has over {_MAX_LINE_CHARACTERS:,} characters"
        self.count("lines/too_long", problem, "Put line ends into it")
        return self._policy == "skip"

    def note_encoding(self, codec: str) -> None:
        """Count a file in another encoding than UTF-8."""
        if codec != "utf-8":
            self._dropped[f"{READ_AS}{codec}"] += 1

    def note_second(self, number: int, codec: str, second: str | None) -> None:
        """Count a line in another encoding than the rest of the file, and name the first one."""
        if not self._second_named:
            self._second_named = True
            warn(
                f"{self._file.path}:{number} is {second} text, and the file is read as {codec}; such lines are read as "
                f"{second}, counted under {SECOND_ENCODING}",
                extra=of_kind("files of two encodings"),
            )
        self._dropped[SECOND_ENCODING] += 1

    def is_archive(self, number: int) -> bool:
        """Return whether the file is an archive, whose first bytes are never text."""
        kind = archive_kind(self._file.path) if number == 1 else None
        if kind is not None:
            problem = f"a {kind} archive, which is not opened: names in it could point anywhere"
            self.count("files/archive", problem, "Unpack it into a folder")
        return kind is not None

    def _not_text(self, number: int, found: re.Match[str], encoding: str, is_detected: bool) -> str:
        place = f"{self._file.path}:{number}:"
        rest = "or corpus.on_undecodable=skip to count such records and leave them out, or replace."
        if found[0] == "\0":
            return f"{place} a NUL byte at character {found.start() + 1}; text has none. Take it out, {rest}"
        with self._file.path.open("rb") as handle:
            utf16 = handle.read(2) in _UTF16_MARKS
        hint = "Set corpus.encoding to its encoding (auto detects it)"
        if utf16:
            hint = "It begins with a UTF-16 mark: try corpus.encoding=utf-16 (auto detects it)"
        elif is_detected:
            hint = "Most of the file is, and no other encoding is known for such lines: mend it"
        byte = f"byte 0x{ord(found[0]) - 0xDC00:02x} at character {found.start() + 1}"
        return f"{place} {byte} is not {encoding} text. {hint}, {rest}"


def _codec_of(file: InputFile, encoding: str, faults: _Faults) -> str | None:
    """Return the codec for a file; None if it is to be detected and cannot be."""
    if encoding == AUTO:
        codec = detect_encoding(file.path)
        if codec is None:
            if not faults.is_archive(1):
                hint = "Take it away, or set corpus.encoding"
                faults.count("files/undecodable", "not text in any known encoding", hint)
            return None
        faults.note_encoding(codec)
    else:
        try:
            codec = codecs.lookup(encoding).name
        except LookupError as error:
            raise ConfigError(
                f"corpus.encoding is {encoding!r}, which Python does not know; try utf-8, or auto."
            ) from error
    # A byte-order mark is not part of the text.
    return "utf-8-sig" if codec == "utf-8" else codec


def _past_line_end(handle: io.TextIOWrapper, text: str) -> str:
    """Read past the end of a line that is too long, in bounded memory; return an empty line."""
    while text and not text.endswith("\n"):
        text = handle.readline(_SKIPPED_CHARACTERS)
    return "\n"


def counted(lines: Iterator[Line], file: InputFile, dropped: Counter[str]) -> Iterator[Line]:
    """Pass on the lines of a file; a file of blank lines only is counted under `files/empty`.

    One of which nothing could be read is counted by its fault alone.
    """
    blank, faults = True, _faulty_files(dropped)
    for line in lines:
        blank = blank and not line.text.strip()
        yield line
    if blank and _faulty_files(dropped) == faults:
        leave_out(dropped, "files/empty", file.name)


def _faulty_files(dropped: Counter[str]) -> int:
    return sum(number for reason, number in dropped.items() if reason.startswith("files/"))
