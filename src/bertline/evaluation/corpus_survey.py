"""What a corpus looks like: read once, in bounded memory; the same corpus gives the same survey."""

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from bertline.corpus.document import Document, label_of
from bertline.corpus.selection import SPLITS
from bertline.corpus.storage import FORMAT_VERSION, KIND, read_documents
from bertline.foundation.manifests import read_manifest

NUM_RANDOM, NUM_FREQUENT, NUM_LONGEST = 20, 20, 5
SHORT_CHARACTERS = 40
"""Longest sentence, in characters, that is counted among the frequent short ones."""
# Random sentences of each source and language, however many there are.
_FEWEST_RANDOM = 3


@dataclass(frozen=True, order=True, slots=True)
class ShownSentence:
    """A sentence and the document it is of."""

    document: str
    text: str


@dataclass(kw_only=True, slots=True)
class SurveyedPart:
    """What one source looks like in one language, or a corpus of one source as a whole."""

    sentences: int
    random: list[ShownSentence] = field(default_factory=list)
    """In reading order."""
    words_per_sentence: Counter[int] = field(default_factory=Counter)
    """Sentences by their number of words."""
    sentences_per_document: Counter[int] = field(default_factory=Counter)
    short: Counter[str] = field(default_factory=Counter)
    """Short sentences with how often they occur."""

    @property
    def share_of_few_words(self) -> float:
        """The share of sentences with one or two words."""
        few = sum(number for length, number in self.words_per_sentence.items() if length <= 2)
        return few / max(1, self.sentences)

    def add(self, document: Document, position: int, chosen: set[int], most_counted: int) -> None:
        """Consider a document whose first sentence is at a position of this part."""
        self.sentences_per_document[len(document.sentences)] += 1
        for place, text in enumerate(document.sentences, position):
            self.words_per_sentence[text.count(" ") + 1] += 1
            if len(text) <= SHORT_CHARACTERS:
                self.short[text] += 1
            if place in chosen:
                self.random.append(ShownSentence(document.id, text))
        if len(self.short) > most_counted:  # what occurred once so far is not among the most frequent of a large corpus
            self.short = Counter({text: number for text, number in self.short.items() if number > 1})


@dataclass(kw_only=True, slots=True)
class CorpusSurvey:
    """What a corpus looks like, as a whole and by source and language (`label_of`)."""

    whole: SurveyedPart
    parts: dict[str, SurveyedPart]
    """Empty for a corpus of one."""
    frequent_short: list[tuple[str, int]]
    """Sentences that occur more than once, the most frequent first, with how often."""
    longest: list[ShownSentence]


def survey_corpus(folder: Path, *, seed: int = 0) -> CorpusSurvey:
    """Read a corpus and return what it looks like."""
    manifest = read_manifest(folder, kind=KIND, format_version=FORMAT_VERSION)
    sizes = {
        label: sum(part["counts"].get(f"{split}/sentences", 0) for split in SPLITS)
        for label, part in manifest.get("sources", {"parts": {}})["parts"].items()
    }
    if len(sizes) < 2:  # a corpus of one source is one part without a name
        sizes = {"": sum(manifest["counts"][split]["sentences"] for split in SPLITS)}
    parts = {label: SurveyedPart(sentences=total) for label, total in sizes.items()}
    num_random = max(_FEWEST_RANDOM, NUM_RANDOM // len(parts))
    chosen = {
        label: set(random.Random(seed).sample(range(total), min(num_random, total))) for label, total in sizes.items()
    }
    positions = Counter(dict.fromkeys(parts, 0))
    longest: list[ShownSentence] = []
    for split in SPLITS:
        for document in read_documents(folder, split):
            label = label_of(document.id) if len(parts) > 1 else ""
            parts[label].add(document, positions[label], chosen[label], 400_000 // len(parts))
            positions[label] += len(document.sentences)
            shown = (ShownSentence(document.id, text) for text in document.sentences)
            longest = heapq.nlargest(NUM_LONGEST, [*longest, *shown], key=lambda one: len(one.text))
    whole = SurveyedPart(sentences=sum(sizes.values()))
    for part in parts.values():
        whole.random += part.random
        for name in ("words_per_sentence", "sentences_per_document", "short"):
            getattr(whole, name).update(getattr(part, name))
    frequent = [(-number, text) for text, number in whole.short.items() if number > 1]
    return CorpusSurvey(
        whole=whole,
        parts=parts if len(parts) > 1 else {},
        frequent_short=[(text, -number) for number, text in heapq.nsmallest(NUM_FREQUENT, frequent)],
        longest=longest,
    )


def doubling_bins(counts: Counter[int]) -> list[tuple[str, float]]:
    """Return amounts by number in bins 1, 2, 3 to 4, 5 to 8, ... up to the last that is not empty.

    >>> doubling_bins(Counter({1: 5, 3: 1, 4: 1, 9: 2}))
    [('1', 5), ('2', 0), ('3 to 4', 2), ('5 to 8', 0), ('9 to 16', 2)]
    """
    bins: list[tuple[str, float]] = []
    low, high, most = 1, 1, max(counts, default=0)
    while low <= most:
        inside = sum(number for value, number in counts.items() if low <= value <= high)
        bins.append((str(low) if low == high else f"{low:,} to {high:,}", inside))
        low, high = high + 1, high * 2
    return bins or [("none", 0)]
