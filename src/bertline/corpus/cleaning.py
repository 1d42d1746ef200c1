"""Text cleaning, and hash keys for finding duplicates."""

from __future__ import annotations

import hashlib
import re
import unicodedata

# Control characters, zero-width and direction marks, soft hyphens (they would split words into unknown tokens), lone
# surrogates (not text, and not encodable) and the replacement character.
_UNWANTED = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ud800-\udfff\ufeff\ufffd]"
)
_KEY_BYTES = 12  # the probability of any collision among 10**9 texts is below 10**-10


def clean(text: str) -> str:
    r"""Clean one block of text: no control characters, single spaces, one line, Unicode NFC.

    Example:
        >>> clean("Cafe\u0301\x00  au\n lait ")
        'Café au lait'
    """
    text = " ".join(text.split())
    if not text.isprintable():
        text = " ".join(_UNWANTED.sub("", text).split())
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def duplicate_key(text: str) -> bytes:
    """Return a 12-byte hash that is equal for texts that differ only in case and white space.

    Example:
        >>> duplicate_key("The  cat") == duplicate_key("the cat")
        True
    """
    return hashlib.blake2b(" ".join(text.casefold().split()).encode(), digest_size=_KEY_BYTES).digest()
