"""What readers leave out: counted by reason, with a few samples for a person to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

_MAX_CHARACTERS = 1_000
_UNPRINTABLE = "\ufffd"

Show = Callable[[str, str, str], None]
"""Takes reason, place and text of something that was left out."""


class ShownCounts(Counter[str]):
    """Counts of what a reader leaves out, which are shown as they are counted."""

    def __init__(self, show: Show) -> None:
        super().__init__()
        self.show = show


def leave_out(dropped: Counter[str], reason: str, where: str, text: str = "") -> None:
    """Count something that is left out, and show it where the counts are shown.

    Args:
        dropped: Counter of a reader.
        reason: Such as `documents/undecodable`.
        where: Id of the document, or name of the file.
        text: Its text, or the beginning of it; of a file what is wrong with it.

    Example:
        >>> seen = []
        >>> counts = ShownCounts(lambda *one: seen.append(one))
        >>> leave_out(counts, "documents/undecodable", "a.txt:3", "caf\\x00 au\\n lait")
        >>> counts["documents/undecodable"], seen
        (1, [('documents/undecodable', 'a.txt:3', 'caf� au lait')])
    """
    dropped[reason] += 1
    if isinstance(dropped, ShownCounts):
        dropped.show(reason, _readable(where), _readable(text))


def counts_of_source(dropped: Counter[str], name: str) -> Counter[str]:
    """Return a counter for one of several sources, shown where `dropped` is, with ids that begin with its name."""
    if not isinstance(dropped, ShownCounts):
        return Counter()
    show = dropped.show
    return ShownCounts(lambda reason, where, text: show(reason, f"{name}/{where}", text))


def _readable(text: str) -> str:
    text = " ".join(text[:_MAX_CHARACTERS].split())
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _UNPRINTABLE for character in text)
