"""What a corpus looks like: read once, in bounded memory; the same corpus gives the same survey."""

from __future__ import annotations

import heapq
import random
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import count as numbers
from pathlib import Path

from bertline.corpus.document import Split
from bertline.corpus.storage import FORMAT_VERSION, KIND, read_documents
from bertline.foundation.manifests import read_manifest

NUM_RANDOM, NUM_FREQUENT, NUM_LONGEST = 20, 20, 5
SHORT_CHARACTERS = 40
"""Longest sentence, in characters, that is counted among the frequent short ones."""
_MAX_COUNTED = 400_000
_SCRIPT_SAMPLES = 4_000
_SPLITS: tuple[Split, ...] = ("train", "validation")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence and the document it is of."""

    document: str
    text: str


@dataclass(kw_only=True, slots=True)
class Survey:
    """What a corpus looks like."""

    sentences: int
    random: list[Sentence] = field(default_factory=list)
    """In reading order."""
    frequent_short: list[tuple[str, int]] = field(default_factory=list)
    """Sentences that occur more than once, with how often, the most frequent first."""
    longest: list[Sentence] = field(default_factory=list)
    words_per_sentence: Counter[int] = field(default_factory=Counter)
    """Sentences by their number of words."""
    sentences_per_document: Counter[int] = field(default_factory=Counter)
    scripts: Counter[str] = field(default_factory=Counter)
    """Letters of a sample of sentences by script, such as `LATIN`."""

    def share_of_words(self, *, up_to: int) -> float:
        """Return the share of sentences with at most some words."""
        few = sum(number for words, number in self.words_per_sentence.items() if words <= up_to)
        return few / max(1, self.sentences)


def survey_corpus(folder: Path, *, seed: int = 0) -> Survey:
    """Read a corpus and return what it looks like.

    Args:
        folder: The artifact.
        seed: Seed of the random sentences.

    Raises:
        ArtifactError: The folder is not a corpus, or a shard is missing or damaged.
    """
    counts = read_manifest(folder, kind=KIND, format_version=FORMAT_VERSION)["counts"]
    total = sum(counts[split]["sentences"] for split in _SPLITS)
    survey = Survey(sentences=total)
    wanted = set(random.Random(seed).sample(range(total), min(NUM_RANDOM, total)))
    every = max(1, total // _SCRIPT_SAMPLES)
    short: Counter[str] = Counter()
    longest: list[tuple[int, int, str, str]] = []
    position = numbers()
    for name, sentences in _documents(folder, survey):
        for text, place in zip(sentences, position, strict=False):
            survey.words_per_sentence[text.count(" ") + 1] += 1
            size = len(text)
            if size <= SHORT_CHARACTERS:
                short[text] += 1
            if len(longest) < NUM_LONGEST or size > longest[0][0]:
                entry = (size, -place, name, text)
                (heapq.heappush if len(longest) < NUM_LONGEST else heapq.heappushpop)(longest, entry)
            if place in wanted:
                survey.random.append(Sentence(name, text))
            if place % every == 0:
                survey.scripts.update(map(script_of, filter(str.isalpha, text)))
        if len(short) > _MAX_COUNTED:  # what occurred once so far is not among the most frequent of a large corpus
            short = Counter({text: number for text, number in short.items() if number > 1})
    survey.longest = [Sentence(name, text) for _, _, name, text in sorted(longest, reverse=True)]
    frequent = [(text, number) for text, number in short.items() if number > 1]
    survey.frequent_short = sorted(frequent, key=lambda entry: (-entry[1], entry[0]))[:NUM_FREQUENT]
    return survey


def _documents(folder: Path, survey: Survey) -> Iterator[tuple[str, tuple[str, ...]]]:
    for split in _SPLITS:
        for document in read_documents(folder, split):
            survey.sentences_per_document[len(document.sentences)] += 1
            yield document.id, document.sentences


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
