"""Detection of the character encoding of one file, and of the lines in it that have another."""

from __future__ import annotations

import codecs
from pathlib import Path

import chardet
from chardet import EncodingEra

from bertline.corpus.compression import open_decompressed

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
        """Return a line, and whether it is in the second encoding of the file.

        Args:
            text: The line, decoded as UTF-8 with surrogate escapes.
        """
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
    found: list[bytes] = []
    rest, read = b"", 0
    with open_decompressed(path) as handle:
        while read < _MAX_SEARCHED_BYTES and sum(map(len, found)) < _MAX_SAMPLE_BYTES:
            chunk = handle.read(_CHUNK_BYTES)
            *lines, rest = (rest + chunk).split(b"\n") if chunk else (rest, b"")
            found += [line for line in lines if not _is_utf8(line)]
            read += len(chunk)
            if not chunk:
                break
    codec = _detected(b"\n".join(found)) if len(found) >= _FEWEST_LINES else None
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
    found = modern["encoding"] or chardet.detect(sample)["encoding"]
    if found is None:
        return None
    name = codecs.lookup(found).name
    return "utf-8" if name == "ascii" else name


def _is_mostly_utf8(sample: bytes) -> bool:
    """Return whether a sample has more valid multi-byte characters of UTF-8 than bytes that are invalid."""
    text = sample.decode("utf-8", errors="surrogateescape")
    invalid = sum("\udc80" <= character <= "\udcff" for character in text)
    valid = sum(character > "\x7f" for character in text) - invalid
    # Fewer than four at the end may be a character that the sample cuts in two.
    return valid > invalid and b"\x00" not in sample
