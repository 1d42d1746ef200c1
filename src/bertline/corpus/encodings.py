"""Detection of the character encoding of one file."""

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


def detect_encoding(path: Path) -> str | None:
    """Detect the encoding of a plain or compressed file: byte order mark, else UTF-8, else a detector (chardet).

    The file is read only up to the first non-ASCII text. That is UTF-8 if most of its non-ASCII characters are valid in
    it: in a file of mixed encodings, `corpus.on_undecodable` says what happens to the other lines.

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
        # Text that is ASCII all but a few words would look like ASCII.
        sample = b"\n".join(line for line in sample.split(b"\n") if not line.isascii())
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
