"""What a corpus looks like: read once, in bounded memory; the same corpus gives the same survey."""

from __future__ import annotations

import heapq
import random
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import count as numbers
from pathlib import Path
from typing import Any

from bertline.corpus.document import Document, Split, label_of
from bertline.corpus.storage import FORMAT_VERSION, KIND, read_documents
from bertline.foundation.manifests import read_manifest

NUM_RANDOM, NUM_FREQUENT, NUM_LONGEST = 20, 20, 5
SHORT_CHARACTERS = 40
"""Longest sentence, in characters, that is counted among the frequent short ones."""
_MAX_COUNTED = 400_000
_SCRIPT_SAMPLES = 4_000
_FEWEST_RANDOM, _FEWEST_SCRIPT_SAMPLES = 3, 200
"""Sentences of each source and language, however many there are."""
_SPLITS: tuple[Split, ...] = ("train", "validation")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence and the document it is of."""

    document: str
    text: str


@dataclass(kw_only=True, slots=True)
class Part:
    """What one source looks like in one language, or a corpus of one source as a whole."""

    sentences: int
    random: list[Sentence] = field(default_factory=list)
    """In reading order."""
    words_per_sentence: Counter[int] = field(default_factory=Counter)
    """Sentences by their number of words."""
    sentences_per_document: Counter[int] = field(default_factory=Counter)
    scripts: Counter[str] = field(default_factory=Counter)
    """Letters of a sample of sentences by script, such as `LATIN`."""

    def share_of_words(self, *, up_to: int) -> float:
        """Return the share of sentences with at most some words."""
        few = sum(number for words, number in self.words_per_sentence.items() if words <= up_to)
        return few / max(1, self.sentences)


@dataclass(kw_only=True, slots=True)
class Survey(Part):
    """What a corpus looks like."""

    frequent_short: list[tuple[str, int]] = field(default_factory=list)
    """Sentences that occur more than once, with how often, the most frequent first."""
    longest: list[Sentence] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)
    """By source and language (`corpus.labels.label_of`), in a corpus of several."""
    frequent_in: dict[str, dict[str, int]] = field(default_factory=dict)
    """How often each of `frequent_short` occurs, by source and language, in a corpus of several."""


def survey_corpus(folder: Path, *, seed: int = 0) -> Survey:
    """Read a corpus and return what it looks like.

    Args:
        folder: The artifact.
        seed: Seed of the random sentences.

    Raises:
        ArtifactError: The folder is not a corpus, or a shard is missing or damaged.
    """
    manifest = read_manifest(folder, kind=KIND, format_version=FORMAT_VERSION)
    sizes = _sentences_by_label(manifest)
    parts = {label: Part(sentences=total) for label, total in sizes.items()}
    num_random = max(_FEWEST_RANDOM, NUM_RANDOM // len(parts))
    wanted = {
        label: set(random.Random(seed).sample(range(total), min(num_random, total))) for label, total in sizes.items()
    }
    samples = max(_FEWEST_SCRIPT_SAMPLES, _SCRIPT_SAMPLES // len(parts))
    every = {label: max(1, total // samples) for label, total in sizes.items()}
    most_counted = _MAX_COUNTED // len(parts)
    short: defaultdict[str, Counter[str]] = defaultdict(Counter)
    longest: list[tuple[int, int, str, str]] = []
    positions = {label: numbers() for label in parts}
    order = numbers()
    for document in _documents(folder):
        label = label_of(document.id) if len(parts) > 1 else next(iter(parts))
        part, counted = parts[label], short[label]
        part.sentences_per_document[len(document.sentences)] += 1
        for text, place in zip(document.sentences, positions[label], strict=False):
            part.words_per_sentence[text.count(" ") + 1] += 1
            size = len(text)
            if size <= SHORT_CHARACTERS:
                counted[text] += 1
            if len(longest) < NUM_LONGEST or size > longest[0][0]:
                entry = (size, -next(order), document.id, text)
                (heapq.heappush if len(longest) < NUM_LONGEST else heapq.heappushpop)(longest, entry)
            if place in wanted[label]:
                part.random.append(Sentence(document.id, text))
            if place % every[label] == 0:
                part.scripts.update(map(script_of, filter(str.isalpha, text)))
        if len(counted) > most_counted:  # what occurred once so far is not among the most frequent of a large corpus
            short[label] = Counter({text: number for text, number in counted.items() if number > 1})
    survey = _whole(parts)
    survey.longest = [Sentence(name, text) for _, _, name, text in sorted(longest, reverse=True)]
    _add_frequent(survey, short)
    return survey


def _sentences_by_label(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of sentences of each source and language; of a corpus of one as a whole, under no name."""
    found = {
        label: sum(part["counts"].get(f"{split}/sentences", 0) for split in _SPLITS)
        for label, part in manifest.get("sources", {"parts": {}})["parts"].items()
    }
    return found if len(found) > 1 else {"": sum(manifest["counts"][split]["sentences"] for split in _SPLITS)}


def _documents(folder: Path) -> Iterator[Document]:
    for split in _SPLITS:
        yield from read_documents(folder, split)


def _whole(parts: dict[str, Part]) -> Survey:
    survey = Survey(sentences=sum(part.sentences for part in parts.values()))
    for part in parts.values():
        survey.random += part.random
        survey.words_per_sentence.update(part.words_per_sentence)
        survey.sentences_per_document.update(part.sentences_per_document)
        survey.scripts.update(part.scripts)
    if len(parts) > 1:
        survey.parts = parts
    return survey


def _add_frequent(survey: Survey, short: Mapping[str, Counter[str]]) -> None:
    total: Counter[str] = Counter()
    for counted in short.values():
        total.update(counted)
    frequent = [(text, number) for text, number in total.items() if number > 1]
    survey.frequent_short = sorted(frequent, key=lambda entry: (-entry[1], entry[0]))[:NUM_FREQUENT]
    if survey.parts:
        survey.frequent_in = {
            text: {label: short[label][text] for label in survey.parts if label in short and short[label][text]}
            for text, _ in survey.frequent_short
        }


@cache
def script_of(letter: str) -> str:
    """Return the script of a letter by its name.

    Example:
        >>> script_of("a"), script_of("я"), script_of("字")
        ('LATIN', 'CYRILLIC', 'CJK')
    """
    return unicodedata.name(letter, "OTHER").split(" ")[0].split("-")[0]


def doubling_bins(counts: Counter[int]) -> list[tuple[str, int]]:
    """Return amounts by number in bins 1, 2, 3 to 4, 5 to 8, ... up to the last that is not empty.

    Example:
        >>> doubling_bins(Counter({1: 5, 3: 1, 4: 1, 9: 2}))
        [('1', 5), ('2', 0), ('3 to 4', 2), ('5 to 8', 0), ('9 to 16', 2)]
    """
    bins: list[tuple[str, int]] = []
    low, high, most = 1, 1, max(counts, default=0)
    while low <= most:
        inside = sum(number for value, number in counts.items() if low <= value <= high)
        bins.append((str(low) if low == high else f"{low:,} to {high:,}", inside))
        low, high = high + 1, high * 2
    return bins


def quantile(counts: Counter[int], share: float) -> int:
    """Return the smallest value that a share of all does not exceed; 0 if there is nothing.

    Example:
        >>> quantile(Counter({1: 5, 3: 4, 40: 1}), 0.5), quantile(Counter({1: 5, 3: 4, 40: 1}), 0.9)
        (1, 3)
    """
    wanted, seen = share * counts.total(), 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= wanted:
            return value
    return 0
