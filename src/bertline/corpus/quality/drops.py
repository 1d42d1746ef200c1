"""What was changed, converted or dropped: names of the counts as workers report them, and a sample of each to read."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# What the cleaning of text changed, dropped or found, as workers report it.

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
    kept_lines = {name: counts[name] for name in _KEPT_LINES if counts[name]}
    return kept_lines | {name.removeprefix(READ_AS): counts[name] for name in counts if name.startswith(READ_AS)}


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


DROPS_NAME = "drops.json"
"""File of the run folder with the content of `DropSamples`."""
NUM_SAMPLES, NUM_SAMPLES_BY_SOURCE = 5, 3
"""Samples of each reason, and of each reason and source in a corpus of several."""
_MAX_CHARACTERS = 400
_LINE_CHARACTERS = 160
_SHOWN_FILES = 3


class DropSamples:
    """A few of what was dropped for each reason, the same for the same input, in bounded memory.

    With several sources they are of each source, so that a large one does not hide what happens to a small one.
    """

    def __init__(self) -> None:
        self._kept: defaultdict[tuple[str, str], list[tuple[int, str, str, str]]] = defaultdict(list)
        self.counts: dict[str, int] = {}
        self.source_of: Callable[[str], str] | None = None
        """Returns the source of a document's id, in a corpus of several."""
        self.by_source: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Numbers by source and reason, if `source_of` is set."""

    def add(self, reason: str, where: str, text: str, note: str = "") -> None:
        """Count and consider one dropped text: of different ones, those with the highest hashes stay."""
        self.count(reason, where)
        self.keep(reason, where, text, note)

    def keep(self, reason: str, where: str, text: str, note: str = "") -> None:
        """Consider a sample of what is counted elsewhere; see `add`."""
        text = text[:_MAX_CHARACTERS]
        rank = int.from_bytes(hashlib.blake2b(f"{where}\n{text}".encode(), digest_size=8).digest(), "big")
        kept = self._kept[reason, self._source(where)]
        again = next((place for place, one in enumerate(kept) if text and one[2] == text), None)
        if again is not None:  # a cookie notice is shown once, whichever of the pages has the highest hash
            kept[again] = max(kept[again], (rank, where, text, note))
            heapq.heapify(kept)
        elif len(kept) < (NUM_SAMPLES if self.source_of is None else NUM_SAMPLES_BY_SOURCE):
            heapq.heappush(kept, (rank, where, text, note))
        else:
            heapq.heappushpop(kept, (rank, where, text, note))

    def take(self, others: DropSamples) -> None:
        """Consider the samples of others, which are counted elsewhere."""
        for (reason, _), kept in others._kept.items():
            for _, where, text, note in kept:
                self.keep(reason, where, text, note)

    def count(self, reason: str, where: str, number: int = 1) -> None:
        """Count under its source what has no text to show."""
        if self.source_of is not None:
            self.by_source[self._source(where)][reason] += number

    def _source(self, where: str) -> str:
        return "" if self.source_of is None else self.source_of(where)

    def content(self) -> dict[str, Any]:
        """Return counts and samples by reason as plain data; with several sources also `by_source`, the counts.

        Each sample has `id`, `text` and `note`, and its `source` where there are several.
        """
        samples: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
        for (reason, source), kept in sorted(self._kept.items()):
            of = {} if self.source_of is None else {"source": source}
            samples[reason] += [
                {"id": where, "text": text, "note": note, **of} for _, where, text, note in sorted(kept, reverse=True)
            ]
        content: dict[str, Any] = {"counts": self.counts, "samples": dict(samples)}
        if self.source_of is not None:
            content["by_source"] = {name: dict(sorted(by.items())) for name, by in sorted(self.by_source.items()) if by}
        return content

    def names_of_files(self) -> dict[str, list[str]]:
        """Return the names of a few files that were left out, by reason."""
        samples = self.content()["samples"]
        return {
            reason: sorted(one["id"] for one in samples[reason])[:_SHOWN_FILES]
            for reason in sorted(samples)
            if reason.startswith("files/")
        }

    def lines(self) -> list[str]:
        """Return counts and samples as lines of text, by reason."""
        found = []
        content = self.content()["samples"]
        for reason, number in sorted(self.counts.items()):
            found.append(f"{reason}: {number:,}")
            for one in content.get(reason, []):
                note = f" ({one['note']})" if one["note"] else ""
                found.append(f"    {one['id']}{note}: {one['text'][:_LINE_CHARACTERS]}")
        return found


def drops_in_words(counts: Mapping[str, int], names: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return all counts by what was dropped and why, in one line.

    Example:
        >>> drops_in_words({"documents/duplicate": 1200, "paragraphs/duplicate": 7, "documents/empty": 1})
        'dropped 1,201 documents (1,200 duplicate, 1 empty), 7 paragraphs (7 duplicate)'
        >>> drops_in_words({})
        'nothing was dropped'
        >>> drops_in_words({"changed_paragraphs/hyphens": 3, "marked_paragraphs/tag": 1})
        'nothing was dropped; 3 changed paragraphs (3 hyphens); 1 marked paragraph (1 tag)'
        >>> drops_in_words({"files/other_suffix": 4}, {"files/other_suffix": ["README", "a.docx"]})
        'dropped 4 files (4 other suffix, such as README, a.docx)'
    """
    names = {} if names is None else names
    by_thing: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for key, count in counts.items():
        if count:
            thing, _, reason = key.partition("/")
            shown = names.get(key, ())
            such_as = f"{', such as' if len(shown) < count else ':'} {', '.join(shown)}" if shown else ""
            by_thing[thing][f"{reason.replace('_', ' ')}{such_as}"] += count
    parts: list[str] = []
    stay: list[str] = []
    for thing, reasons in by_thing.items():
        listed = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
        total = reasons.total()
        name = (thing.removesuffix("s") if total == 1 else thing).replace("_", " ")
        (stay if is_no_drop(f"{thing}/") else parts).append(f"{total:,} {name} ({listed})")
    return "; ".join([f"dropped {', '.join(parts)}" if parts else "nothing was dropped", *stay])
