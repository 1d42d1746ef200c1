"""What the cleaning of text changed, dropped or found, as workers report it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

CHANGED = "changed_paragraphs/"
"""Counts of paragraphs whose text was changed, by how."""
MARKED = "marked_paragraphs/"
"""Counts of paragraphs with left-over markup that stays, by kind."""
READ_AS = "encodings/"
"""Beginning of the names under which files in another encoding than UTF-8 are counted; nothing is dropped of them."""
REPLACED = "lines/replaced"
"""Lines that are kept, with U+FFFD for what is not text in their encoding."""
SECOND_ENCODING = "lines/read_in_a_second_encoding"
"""Lines that are kept, in another encoding than the rest of their file."""
_KEPT_LINES = (REPLACED, SECOND_ENCODING)
CONVERTED = "converted_files/"
"""Counts of files in another encoding than UTF-8, by encoding, as people are told of them."""
KEPT = "kept_lines/"
"""Counts of lines that stay though parts of them are not text, by what became of these."""
_AROUND = 120


@dataclass(frozen=True, slots=True)
class Change:
    """One paragraph, line or document that is counted under a reason."""

    reason: str
    """As it is counted, such as `changed_paragraphs/hyphens` or `lines/repeated`."""
    text: str
    """What to show a person."""
    note: str = ""

    @property
    def drops_document(self) -> bool:
        """Whether the document is dropped for this."""
        return self.reason.startswith("documents/")


def excerpt(text: str, start: int, end: int) -> str:
    """Return a place of some text with what is around it, on one line.

    Example:
        >>> excerpt("It was consid-\\nered late.", 7, 19)
        'It was consid- ered late.'
    """
    return " ".join(text[max(0, start - _AROUND) : end + _AROUND].split())


def is_no_drop(reason: str) -> bool:
    """Return whether text that is counted under a reason stays in the corpus, changed or as it is."""
    return reason.startswith((CHANGED, MARKED, CONVERTED, KEPT, READ_AS)) or reason in _KEPT_LINES


def counts_of_changes(counts: Counter[str]) -> dict[str, int]:
    """Return the counts of what cleaning changed or found, by reason."""
    return {reason: count for reason, count in sorted(counts.items()) if count and reason.startswith((CHANGED, MARKED))}


def manifest_of_encodings(counts: Counter[str]) -> dict[str, int]:
    """Return the counts of `counts_of_encodings` under the names of the manifest."""
    kept = {name: counts[name] for name in _KEPT_LINES if counts[name]}
    return kept | {name.removeprefix(READ_AS): counts[name] for name in counts if name.startswith(READ_AS)}


def counts_of_encodings(counts: Counter[str]) -> dict[str, int]:
    """Return the counts of files by their encoding and of lines that are kept otherwise, under the names for people.

    Example:
        >>> counts_of_encodings(Counter({"encodings/cp1252": 3, "lines/replaced": 2, "documents/empty": 1}))
        {'converted_files/cp1252': 3, 'kept_lines/replaced': 2}
    """
    found = {
        f"{CONVERTED}{name.removeprefix(READ_AS)}": counts[name] for name in sorted(counts) if name.startswith(READ_AS)
    }
    return found | {f"{KEPT}{name.removeprefix('lines/')}": counts[name] for name in _KEPT_LINES if counts[name]}
