"""Cleaning of text, and the keys by which duplicates are known."""

from __future__ import annotations

import hashlib
import re
import unicodedata

# Control characters (but not tab, line feed or the separators that `\s` matches), zero-width marks and the replacement
# character; soft hyphens would otherwise cut words into unknown pieces.
_UNWANTED = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufffd]"
)
_SPACE = re.compile(r"\s+")
_KEY_BYTES = 12  # two of 10**9 texts collide with a probability below 10**-11


def clean(text: str) -> str:
    r"""Normalise one block of text: Unicode NFC, no control characters, single spaces, one line.

    Example:
        >>> clean("Cafe\u0301\x00  au\n lait ")
        'Café au lait'
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return _SPACE.sub(" ", _UNWANTED.sub("", text)).strip()


def duplicate_key(text: str) -> bytes:
    """A short hash that is equal for texts that differ only in case and white space.

    Example:
        >>> duplicate_key("The  cat") == duplicate_key("the cat")
        True
    """
    return hashlib.blake2b(" ".join(text.casefold().split()).encode(), digest_size=_KEY_BYTES).digest()
