"""The lines of input files: encoding, bounded memory, markup, and errors that name file, line and byte."""

from __future__ import annotations

import codecs
import io
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import chardet
from chardet import EncodingEra

from bertline.corpus.compression import TORN, archive_kind, compression_of, is_torn, open_decompressed, text_stream
from bertline.corpus.input_files import FileFaults, InputFile, OnUndecodable, leave_out
from bertline.corpus.quality.drops import READ_AS, REPLACED, SECOND_ENCODING
from bertline.foundation.errors import ConfigError, DataError
from bertline.foundation.progress import of_kind, warn

# Detection of the character encoding of one file, and of the lines in it that have another.

AUTO = "auto"
"""Value of `corpus.encoding` that detects the encoding of each file."""

# UTF-32 first: its little-endian mark begins with that of UTF-16. The codecs without -le and -be take the mark away.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CHUNK_BYTES = 1 << 16
_MAX_SAMPLE_BYTES = 1 << 18
"""Non-ASCII text that is shown to the detector; more does not make it surer."""
_MAX_SEARCHED_BYTES = 1 << 26
"""Beginning of a file in which lines of another encoding are looked for."""
_FEWEST_LINES = 5
"""Lines that are not UTF-8 from which they are another encoding and not damage."""
_NOT_BY_CHANCE = 4
"""Characters from which a line that can be UTF-8 is, where a character or two can be by chance: in encodings of two
bytes a character, and of Thai."""


def detect_encoding(path: Path) -> str | None:
    """Detect the encoding of a plain or compressed file: byte order mark, else UTF-8, else a detector (chardet).

    The file is read only up to the first non-ASCII text. That is UTF-8 if most of its non-ASCII characters are valid in
    it; lines of another encoding are for `LineDecoder`.

    Returns:
        Python's name of the encoding; None if the content is no text in any encoding that the detector knows.
    """
    with open_decompressed(path) as handle:
        chunk = handle.read(_CHUNK_BYTES)
        for mark, name in _MARKS:
            if chunk.startswith(mark):
                return name
        sample = b""
        while chunk and len(sample) < _MAX_SAMPLE_BYTES:
            if not chunk.isascii() or sample or b"\x00" in chunk:
                sample += chunk
                if _is_mostly_utf8(sample):
                    return "utf-8"
            chunk = handle.read(_CHUNK_BYTES)
    if not sample:
        return "utf-8"
    if b"\x00" not in sample:  # else UTF-16 or UTF-32 without a mark, whose lines do not end at a byte
        # Text that is ASCII all but a few words would look like ASCII; of mixed text, UTF-8 is known already.
        lines = [line for line in sample.split(b"\n") if not line.isascii()]
        sample = b"\n".join([line for line in lines if not _is_utf8(line)] or lines)
    return _detected(sample)


class LineDecoder:
    """Decodes each line of a file by itself, so that none is garbled where some are UTF-8 and others are not.

    Args:
        path: The file.
        codec: Encoding of the file: UTF-8, or one whose lower half is ASCII (see `suits`).
        errors: Error handler for bytes that are invalid in `codec`.
    """

    def __init__(self, path: Path, codec: str, errors: str) -> None:
        self._path = path
        self._codec = codec
        self._errors = errors
        self._is_searched = False
        self.second: str | None = None if codec == "utf-8" else "utf-8"
        """The encoding of the lines that are not in `codec`; None if there is none, or it is not known yet."""

    @staticmethod
    def never_looks_like_utf8(codec: str) -> bool:
        """Return whether no text of an encoding can be UTF-8: letters are where UTF-8 has first bytes of characters."""
        return codec.startswith(("cp125", "iso8859", "koi8")) and codec != "iso8859-11"

    @staticmethod
    def suits(codec: str) -> bool:
        """Return whether lines of an encoding can be told from those of UTF-8, since both have ASCII alike."""
        ascii_bytes = bytes(range(32, 127))
        return ascii_bytes.decode(codec, errors="replace").encode("ascii", errors="replace") == ascii_bytes

    def __call__(self, text: str) -> tuple[str, bool]:
        """Return a line, and whether it is in the second encoding of the file."""
        raw = text.encode(errors="surrogateescape")
        if self._codec != "utf-8":
            least = 1 if self.never_looks_like_utf8(self._codec) else _NOT_BY_CHANCE
            if _is_utf8(raw) and sum(character > "\x7f" for character in text) >= least:
                return text, True
            return raw.decode(self._codec, errors=self._errors), False
        if _is_utf8(raw):
            return text, False
        if not self._is_searched:
            self._is_searched, self.second = True, _second_encoding(self._path)
        try:
            return (text, False) if self.second is None else (raw.decode(self.second), True)
        except UnicodeDecodeError:
            return text, False


def _second_encoding(path: Path) -> str | None:
    """Detect the encoding of the lines that are not UTF-8; None if they are few, or in no encoding that is known."""
    sample_lines: list[bytes] = []
    rest, read = b"", 0
    with open_decompressed(path) as handle:
        while read < _MAX_SEARCHED_BYTES and sum(map(len, sample_lines)) < _MAX_SAMPLE_BYTES:
            chunk = handle.read(_CHUNK_BYTES)
            *lines, rest = (rest + chunk).split(b"\n") if chunk else (rest, b"")
            sample_lines += [line for line in lines if not _is_utf8(line)]
            read += len(chunk)
            if not chunk:
                break
    codec = _detected(b"\n".join(sample_lines)) if len(sample_lines) >= _FEWEST_LINES else None
    return codec if codec is not None and codec != "utf-8" and LineDecoder.suits(codec) else None


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _detected(sample: bytes) -> str | None:
    # Old Mac and DOS encodings only if none in use on the web fits: two quotes of cp1252 are letters in mac-latin2.
    modern = chardet.detect(sample, encoding_era=EncodingEra.MODERN_WEB)
    detected = modern["encoding"] or chardet.detect(sample)["encoding"]
    if detected is None:
        return None
    name = codecs.lookup(detected).name
    return "utf-8" if name == "ascii" else name


def _is_mostly_utf8(sample: bytes) -> bool:
    """Return whether a sample has more valid multi-byte characters of UTF-8 than bytes that are invalid."""
    text = sample.decode("utf-8", errors="surrogateescape")
    invalid = sum("\udc80" <= character <= "\udcff" for character in text)
    valid = sum(character > "\x7f" for character in text) - invalid
    # Fewer than four at the end may be a character that the sample cuts in two.
    return valid > invalid and b"\x00" not in sample


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
    (`files/undecodable`, as a file without a detectable encoding); an archive (`files/archive`), and a line over the
    limit (`lines/too_long`).

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
            message = self._not_text(number, found, codec.removesuffix("-sig") if detected else encoding, detected)
            raise DataError(message)
        if not self._line_named:
            self._line_named = True
            fate = "is replaced" if self._policy == "replace" else "such records of this file are left out, counted"
            hint = "" if encoding == AUTO else " (corpus.encoding=auto detects the encoding of each file)"
            message = f"{self._file.path}:{number} is not {codec.removesuffix('-sig')} text; {fate}{hint}"
            warn(message, extra=of_kind("text in another encoding"))
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


# Recognition of markup in what should be plain text.

_MAX_LINES = 200
_MAX_CHARACTERS = 50_000
_TAG = re.compile(r"</?[A-Za-z][\w:.-]*(?:\s[^<>]*)?/?>")
_MAX_TAG_SHARE = 0.2
"""Share of characters in tags above which text is markup; prose about HTML stays far below."""
_MIN_TAGS = 10
"""Fewer may be a sentence about a tag."""
_BEGINNINGS = (
    (re.compile(r"<doc id=", re.IGNORECASE), "corpus=wikiextractor"),
    (re.compile(r"<mediawiki\b", re.IGNORECASE), "WikiExtractor, then corpus=wikiextractor"),
    (re.compile(r"<(?:\w+:)?TEI\b|<teiCorpus\b"), "corpus=tei"),
    (re.compile(r"<!DOCTYPE html|<html\b", re.IGNORECASE), "a converter from HTML to text first"),
    (re.compile(r"<\?xml\b"), "corpus=xml"),
)


def reader_of_markup(text: str) -> str | None:
    """Return what reads a text that is markup, by its beginning; None if it is plain text.

    Example:
        >>> reader_of_markup('<?xml version="1.0"?><TEI xmlns="http://www.tei-c.org/ns/1.0">')
        'corpus=tei'
        >>> reader_of_markup("Use <script>.") is None
        True
        >>> reader_of_markup("The tag <b> makes text bold, </b> ends it.") is None
        True
    """
    text = text.lstrip()
    if text.startswith("<"):
        for beginning, reader in _BEGINNINGS:
            if beginning.search(text[:2_000]) if reader != "corpus=xml" else beginning.match(text):
                return reader
    tags = _TAG.findall(text)
    mostly = len(tags) >= _MIN_TAGS and sum(map(len, tags)) > _MAX_TAG_SHARE * len(text)
    return "corpus=xml" if mostly else None


def peeked(lines: Iterator[Line]) -> tuple[str, Iterator[Line]]:
    """Return the beginning of the lines as one text, and all of the lines."""
    first: list[Line] = []
    characters = 0
    for line in lines:
        first.append(line)
        characters += len(line.text)
        if len(first) >= _MAX_LINES or characters >= _MAX_CHARACTERS:
            break
    return "\n".join(line.text[:_MAX_CHARACTERS] for line in first), chain(first, lines)
