"""Ends of sentences that no mark shows, in letters and on web pages: rows of characters, addresses, smileys, times."""

from __future__ import annotations

import re

# Text without any of these has no such end, which is much faster to see than with the pattern.
_SIGNS = (
    (":", ("://", ":)", ":-)", ":(", ":D")),  # a character is found faster than several
    (";", (";)", ";-)")),
    ("=", ("===", "=)")),
    *((sign[0], (sign,)) for sign in ("***", "___", "~~~", ">>")),
    *((sign, (sign,)) for sign in ("---", "www.", " AM ", " PM ")),
)
_LAYOUT = re.compile(
    r"(?:^|\s)(?=([-*=_~#+])\1{2,}(?:\s|$))"  # before a rule
    r"|(?:---|\*\*\*|===|___|~~~)\s(?![-*=_~])"  # after one
    r"|(?:\s[:;=]-?[)(DP]+)\s(?=[^\W\d_a-z]|\d)"  # after a smiley, before a capital
    r"|(?<=[a-z/])(?<!\b(?:at|to|on|by|in|is|of))\s(?=https?://)"
    r"|(?:https?://|www\.)\S*+(?<=[\w/])\s(?=(?:https?:|www\.|[A-Z]))"
    r"|\s(?=\d\d?/\d\d?/\d{2,4} \d\d:\d\d [AP]M)"
    r"|\d\d:\d\d(?::\d\d)? [AP]M\s(?=[A-Z][a-z])"
    r"|(?:^|(?<=[^\s>]))>>?\s(?=[A-Z<\d])"  # after <ada@example.org>, not in "a > B"
)


def layout_ends(text: str) -> list[int]:
    """Return the places in a paragraph where a sentence begins though no mark ends the one before.

    Example:
        >>> text = "Look at http://a.org/b We were there :) It rained"
        >>> [text[end:] for end in layout_ends(text)]
        ['We were there :) It rained', 'It rained']
    """
    for first, signs in _SIGNS:
        if first in text:
            for sign in signs:
                if sign in text:
                    return [match.end() for match in _LAYOUT.finditer(text)]
    return []
