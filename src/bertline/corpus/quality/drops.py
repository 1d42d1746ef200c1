"""What is left out of a corpus or changed in it: counted by reason, with the first few of each reason to read."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from bertline.corpus.document import Dropped

CHANGED = "changed_paragraphs/"
"""Counts of paragraphs whose text was changed, by how."""
MARKED = "marked_paragraphs/"
"""Counts of paragraphs with left-over markup that stays, by kind."""

DROPS_NAME = "drops.json"
"""File of the corpus with the content of `Drops`."""
NUM_SAMPLES, NUM_SAMPLES_BY_SOURCE = 5, 3
"""Samples of each reason, and of each reason and source in a corpus of several."""
_MAX_CHARACTERS, _AROUND = 400, 120

Before = TypeVar("Before")
After = TypeVar("After")
Step = Callable[[Before], tuple[After | None, Iterable[Dropped]]]
"""A step of preparation: it returns the document, or None, and what it leaves out or changes."""


def is_no_drop(reason: str) -> bool:
    """Return whether text that is counted under a reason stays in the corpus, changed or as it is."""
    return reason.startswith((CHANGED, MARKED))


def excerpt(text: str, start: int, end: int) -> str:
    """Return a place of some text with what is around it, on one line."""
    return " ".join(text[max(0, start - _AROUND) : end + _AROUND].split())


class Drops:
    """Counts and samples of what is left out of a shard."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.samples: defaultdict[str, list[dict[str, str]]] = defaultdict(list)

    def add(self, dropped: Dropped) -> None:
        """Count something, and keep it as a sample if there are few of its reason and none with its text."""
        self.counts[dropped.reason] += dropped.count
        samples = self.samples[dropped.reason]
        if len(samples) == NUM_SAMPLES:
            return
        text = _readable(dropped.text)
        if not (text and any(one["text"] == text for one in samples)):
            samples.append({"id": _readable(dropped.where), "text": text, "note": dropped.note})

    def run(self, step: Step[Before, After], documents: Iterable[Before]) -> Iterator[After]:
        """Yield what a step returns of documents, and count the rest."""
        for document in documents:
            result, dropped = step(document)
            for one in dropped:
                self.add(one)
            if result is not None:
                yield result

    def content(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {"counts": self.counts, "samples": self.samples}


def sum_of_drops(of_shards: Iterable[tuple[str, Mapping[str, Any]]], *, several: bool) -> dict[str, Any]:
    """Add up the contents of `Drops` of shards, each with the name of its source, in order.

    Returns:
        `counts` by reason, `samples` (`id`, `text`, `note`, with several sources `source`) by reason, and with several
        sources `by_source`, the counts of what was dropped.
    """
    counts: Counter[str] = Counter()
    samples: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
    by_source: defaultdict[str, Counter[str]] = defaultdict(Counter)
    most = NUM_SAMPLES_BY_SOURCE if several else NUM_SAMPLES
    for source, content in of_shards:
        counts.update(content["counts"])
        by_source[source].update(content["counts"])
        of_source = {"source": source} if several else {}
        for reason, new in content["samples"].items():
            for one in new:
                others = [other for other in samples[reason] if other.get("source", source) == source]
                if len(others) < most and not (one["text"] and any(one["text"] == other["text"] for other in others)):
                    samples[reason].append(one | of_source)
    found: dict[str, Any] = {"counts": _in_order(counts), "samples": dict(sorted(samples.items()))}
    if several:
        found["by_source"] = {name: _in_order(by_source[name]) for name in sorted(by_source) if by_source[name]}
    return found


def _in_order(counts: Mapping[str, int]) -> dict[str, int]:
    return {reason: counts[reason] for reason in sorted(counts) if counts[reason]}


def manifest_of_drops(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return the counts as the manifest has them: `dropped`, and if there are any, `changed`."""
    parts: dict[str, dict[str, int]] = {"dropped": {}}
    for reason, count in counts.items():
        parts.setdefault("changed" if is_no_drop(reason) else "dropped", {})[reason] = count
    return parts


def _readable(text: str) -> str:
    text = " ".join(text[:_MAX_CHARACTERS].split())
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def drops_in_words(counts: Mapping[str, int]) -> str:
    """Return all counts by what was dropped and why, in one line.

    >>> drops_in_words({"documents/duplicate": 1200, "paragraphs/duplicate": 7, "documents/empty": 1})
    'dropped 1,201 documents (1,200 duplicate, 1 empty), 7 paragraphs (7 duplicate)'
    >>> drops_in_words({})
    'nothing was dropped'
    >>> drops_in_words({"changed_paragraphs/hyphens": 3, "marked_paragraphs/tag": 1})
    'nothing was dropped; 3 changed paragraphs (3 hyphens); 1 marked paragraph (1 tag)'
    """
    by_thing: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for key, count in counts.items():
        thing, _, reason = key.partition("/")
        by_thing[thing][reason.replace("_", " ")] = count
    parts: list[str] = []
    stay: list[str] = []
    for thing, reasons in by_thing.items():
        listed = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
        total = reasons.total()
        name = (thing.removesuffix("s") if total == 1 else thing).replace("_", " ")
        (stay if is_no_drop(f"{thing}/") else parts).append(f"{total:,} {name} ({listed})")
    return "; ".join([f"dropped {', '.join(parts)}" if parts else "nothing was dropped", *stay])
