"""The lines of input files: encoding, bounded memory, and errors that name file, line and byte."""

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bertline.corpus.document import Dropped
from bertline.corpus.files import TORN, OnUndecodable, Part, archive_kind, fault, lines_before, opened, torn
from bertline.foundation.errors import DataError

# Detection of the character encoding of one file.

AUTO = "auto"
"""Value of `encoding` that detects the encoding of each file."""

# UTF-32 first: its little-endian mark begins with that of UTF-16. The codecs without -le and -be take the mark away.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CHUNK_BYTES = 1 << 16
# Non-ASCII text that is shown to the detector; more does not make it surer.
_MAX_SAMPLE_BYTES = 1 << 18


def detect_encoding(part: Part) -> str | None:
    """Detect the encoding of a plain or compressed file: byte order mark, else UTF-8, else a detector (chardet).

    The file is read only up to the first non-ASCII text. That is UTF-8 if most of its non-ASCII characters are valid in
    it; the others are for `on_undecodable`.

    Returns:
        Python's name of the encoding; None if the content is no text in any encoding that the detector knows.
    """
    with opened(part) as handle:
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
        sample = b"\n".join([line for line in lines if line.decode(errors="ignore").encode() != line] or lines)
    import chardet  # which a served model does without
    from chardet import EncodingEra

    # Old Mac and DOS encodings only if none in use on the web fits: two quotes of cp1252 are letters in mac-latin2.
    modern = chardet.detect(sample, encoding_era=EncodingEra.MODERN_WEB)
    detected = modern["encoding"] or chardet.detect(sample)["encoding"]
    codec = detected and codecs.lookup(detected).name
    return "utf-8" if codec == "ascii" else codec


def _is_mostly_utf8(sample: bytes) -> bool:
    """Return whether a sample has more valid multi-byte characters of UTF-8 than bytes that are invalid."""
    text = sample.decode("utf-8", errors="surrogateescape")
    invalid = sum("\udc80" <= character <= "\udcff" for character in text)
    valid = sum(character > "\x7f" for character in text) - invalid
    # Fewer than four at the end may be a character that the sample cuts in two.
    return valid > invalid and b"\x00" not in sample


# What the error handler makes of a byte that it cannot decode, and NUL, which no text has.
_NOT_TEXT = re.compile("[\x00\ud800-\udfff]")
MARKUP = re.compile(r"\s*<[?!A-Za-z][^<>]*>")
"""Beginning of XML and HTML."""
# Limit for files without line ends, which could fill the memory; no real line or document is that long.
_MAX_LINE_CHARACTERS = 200_000_000
_SKIPPED_CHARACTERS = 1 << 20


class Line(NamedTuple):  # made several times as fast as a frozen dataclass
    """A decoded line without its line end."""

    number: int
    """Line number in its part of a file, from 1."""
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


def read_lines(
    part: Part, encoding: str, policy: OnUndecodable, *, newline: str | None = None
) -> Iterator[Line | Dropped]:
    """Read the lines of a plain or compressed file (detected by its first bytes, not by its name), or of a range.

    With `skip`, a line that is no text is marked, for the caller to drop; with `replace`, what is no text in it becomes
    U+FFFD (`lines/replaced`). With both, whatever else is wrong is dropped: a file ends at the damage of its compressed
    data (`files/torn`) or where it cannot be split into lines (`files/undecodable`, as a file without a detectable
    encoding); an archive (`files/archive`), and a line over the limit (`lines/too_long`).

    Args:
        encoding: Name of the encoding, or `auto` to detect that of each file; files that are not UTF-8 are then
            reported as `encodings/NAME`.
        newline: As for `open`. If it is given, lines keep their ends.

    With `fail`, the same is left out, and each has a `fault` that names file, line and byte.

    Raises:
        DataError: The encoding is unknown.
    """
    number = 0
    try:
        codec = detect_encoding(part) if encoding == AUTO else _known(encoding)
        if codec is None:
            problem, hint = "not text in any known encoding", "Take it away, or set encoding"
            yield _archive(part, policy) or fault(part, policy, "files/undecodable", problem, hint)
            return
        if encoding == AUTO and codec != "utf-8":
            yield Dropped(f"encodings/{codec}", part.name)
        with opened(part) as content, io.TextIOWrapper(content, codec, _ERRORS[policy], newline) as handle:
            while text := handle.readline(_MAX_LINE_CHARACTERS):
                number += 1
                if number == 1:  # a byte order mark is not part of the text
                    text = text.removeprefix("\ufeff")
                place, undecodable = f"{part.label}:{number}", False
                if not _is_text(text) and (found := _NOT_TEXT.search(text)):
                    if number == 1 and (archive := _archive(part, policy)):
                        yield archive
                        return
                    text, undecodable = _NOT_TEXT.sub("\ufffd", text), policy != "replace"
                    if policy != "skip":
                        wrong = None if policy == "replace" else _not_text(part, number, found, codec, encoding == AUTO)
                        yield Dropped("lines/replaced", place, text, fault=wrong)
                if len(text) >= _MAX_LINE_CHARACTERS:
                    problem = f"line {number} has over {_MAX_LINE_CHARACTERS:,} characters"
                    yield fault(part, policy, "lines/too_long", problem, "Put line ends into it")
                    undecodable = policy != "replace"
                    while text and not text.endswith("\n"):
                        text = handle.readline(_SKIPPED_CHARACTERS)
                    text = "\n"
                yield Line(number, text.rstrip("\r\n") if newline is None else text, undecodable)
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
        raise DataError(f"encoding is {encoding!r}, which Python does not know; try utf-8, or auto.") from error


def _is_text(text: str) -> bool:
    """Return whether `_NOT_TEXT` matches nowhere; encoding to UTF-8, which refuses surrogates, tells it faster."""
    if "\0" in text:
        return False
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _archive(part: Part, policy: OnUndecodable) -> Dropped | None:
    """Return the fault of an archive, whose first bytes are never text; None if the file is none."""
    if (kind := archive_kind(part)) is None:
        return None
    problem = f"a {kind} archive, which is not opened: names in it could point anywhere"
    return fault(part, policy, "files/archive", problem, "Unpack it into a folder")


def _not_text(part: Part, number: int, found: re.Match[str], codec: str, is_detected: bool) -> tuple[str, str]:
    place = f"{part.path}:{lines_before(part) + number}:"
    if found[0] == "\0":
        return f"{place} a NUL byte at character {found.start() + 1}; text has none.", "Take it out."
    hint = "Set encoding to that of the file (latin-1, cp1252, utf-16 ...; auto detects it), or fix the line."
    if is_detected:
        hint = "Most of the file is, and no other encoding is known for such lines: mend it."
    byte = f"byte 0x{ord(found[0]) - 0xDC00:02x} at character {found.start() + 1}"
    return f"{place} {byte} is not {codec} text.", hint
