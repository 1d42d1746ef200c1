"""Held-out sentences to probe an encoder with: a third unchanged, the others corrupted in two ways. No labels needed.

Two probing tasks of Conneau et al. 2018 need only text. In *bigram shift* two adjacent words are swapped; in *semantic
odd man out* one word is replaced by another. A model that sees only the words without their order, or only their
frequencies, is at chance on both.

References:
    Conneau et al., What you can cram into a single vector (arXiv 1805.01070), section 2.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import numpy as np

from bertline.examples.store import Array, ExampleStore
from bertline.foundation.seeds import generator
from bertline.pretraining.order import shuffled
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import CONTINUATION

Kind = Literal["as_is", "bigram_shift", "odd_word"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Word = tuple[int, ...]
"""Token ids of a word's subwords."""
Sentence = tuple[Word, ...]

# The paper's sentences have 5 to 28 words (section 2).
_FEWEST_WORDS, _MOST_WORDS = 5, 28
_SENTENCE_ENDS = frozenset(".!?。！？।؟")
_TRAIN_SHARE = 2 / 3
_ALIKE_RANKS = 10
"""Largest difference in frequency rank between a word and its replacement: frequency must not reveal it."""
_EXAMPLES_AT_ONCE = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbingSentences:
    """Sentences and how each was corrupted, training sentences first."""

    sentences: tuple[Sentence, ...]
    kinds: Array
    """[N] indices into `KINDS`; balanced, give or take one, both before and after `num_train`."""
    num_train: int

    def __len__(self) -> int:
        return len(self.sentences)


def probing_sentences(store: ExampleStore, tokenizer: Tokenizer, *, max_sentences: int) -> ProbingSentences:
    """Draw sentences and corrupt two thirds of them: a pure function of the examples.

    Training sentences come from the first two thirds of the examples, test sentences from the rest: the examples are in
    document order, so the two parts share at most the document at the border. No sentence is used twice, and each could
    have been corrupted in either way.

    Args:
        store: Held-out examples. Sentences are taken from segment A; segment B is often random text from elsewhere.
        tokenizer: Tokenizer that encoded the examples.
        max_sentences: Largest number of sentences of all three kinds together.

    Returns:
        The sentences; fewer than `max_sentences` if the text has no more.
    """
    words = _Words(tokenizer)
    border = round(len(store) * _TRAIN_SHARE)
    wanted = round(max_sentences * _TRAIN_SHARE)
    seen: set[Sentence] = set()
    train = _gather(store, range(border), words, wanted, seen)
    test = _gather(store, range(border, len(store)), words, max_sentences - wanted, seen)
    alike = _AlikeWords([*train, *test], words, seed=store.manifest["seed"])
    parts = [[sentence for sentence in part if any(word in alike for word in sentence)] for part in (train, test)]
    rng = generator(store.manifest["seed"], "probing sentences")
    corrupted, kinds = [], []
    for part in parts:
        for index, sentence in enumerate(part):
            kind = index % len(KINDS)
            kinds.append(kind)
            corrupted.append(_corrupted(sentence, KINDS[kind], words, alike, rng))
    return ProbingSentences(sentences=tuple(corrupted), kinds=np.array(kinds, dtype=np.int64), num_train=len(parts[0]))


def with_neighbours_swapped(sentence: Sentence, places: Sequence[int], rng: np.random.Generator) -> Sentence:
    """Swap the word at a random one of `places` with its right neighbour.

    Example:
        >>> with_neighbours_swapped(((5,), (6, 7), (8,)), [1], np.random.default_rng(0))
        ((5,), (8,), (6, 7))
    """
    at = int(rng.choice(places))
    return (*sentence[:at], sentence[at + 1], sentence[at], *sentence[at + 2 :])


class _Words:
    """Properties of words, derived from the vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._continues = [token.startswith(CONTINUATION) and token != CONTINUATION for token in tokenizer.vocab]
        self._plain = [
            index not in tokenizer.special_ids and any(character.isalnum() for character in token)
            for index, token in enumerate(tokenizer.vocab)
        ]
        self._ends = frozenset(index for index, token in enumerate(tokenizer.vocab) if token in _SENTENCE_ENDS)

    def is_plain(self, word: Word) -> bool:
        """Return whether this is a word, neither punctuation nor unknown."""
        return self._plain[word[0]]

    def of(self, ids: Sequence[int]) -> list[Word]:
        """Group subwords into words."""
        starts = [index for index, token in enumerate(ids) if not index or not self._continues[token]]
        return [tuple(ids[start:stop]) for start, stop in pairwise([*starts, len(ids)])]

    def sentences(self, segment: Sequence[int]) -> Iterator[Sentence]:
        """Split a segment after closing punctuation, or after `_MOST_WORDS` words without any."""
        sentence: list[Word] = []
        for word in self.of(segment):
            sentence.append(word)
            if word[-1] in self._ends or len(sentence) == _MOST_WORDS:
                yield tuple(sentence)
                sentence = []
        yield tuple(sentence)

    def swappable(self, sentence: Sentence) -> list[int]:
        """Return the positions where a word and its right neighbour are plain and different."""
        return [
            at
            for at, (word, right) in enumerate(pairwise(sentence))
            if word != right and self.is_plain(word) and self.is_plain(right)
        ]


class _AlikeWords:
    """For each plain word that occurs more than once, other words of similar frequency with as many subwords."""

    def __init__(self, sentences: Sequence[Sentence], words: _Words, *, seed: int) -> None:
        counts = Counter(word for sentence in sentences for word in sentence if words.is_plain(word))
        repeated = sorted(word for word, count in counts.items() if count > 1)
        # Words of equal frequency are in random order: neighbours in the vocabulary are often spelt alike.
        order = generator(seed, "ranks of words").permutation(len(repeated))
        by_frequency = sorted((repeated[index] for index in order), key=lambda word: -counts[word])
        self._ranked: dict[int, list[Word]] = {}
        self._ranks: dict[Word, int] = {}
        for word in by_frequency:
            same_length = self._ranked.setdefault(len(word), [])
            self._ranks[word] = len(same_length)
            same_length.append(word)

    def __contains__(self, word: Word) -> bool:
        return word in self._ranks and len(self._ranked[len(word)]) > 1

    def another(self, word: Word, rng: np.random.Generator) -> Word:
        """Draw another word of similar frequency, at most `_ALIKE_RANKS` ranks away."""
        ranked, rank = self._ranked[len(word)], self._ranks[word]
        near = range(max(0, rank - _ALIKE_RANKS), min(len(ranked), rank + _ALIKE_RANKS + 1))
        return ranked[int(rng.choice([other for other in near if other != rank]))]


def _gather(store: ExampleStore, region: range, words: _Words, wanted: int, seen: set[Sentence]) -> list[Sentence]:
    """Return at most `wanted` new sentences of a region of the examples, drawn in random order."""
    found: list[Sentence] = []
    seed = store.manifest["seed"]
    for start in range(0, len(region), _EXAMPLES_AT_ONCE):
        positions = np.arange(start, min(start + _EXAMPLES_AT_ONCE, len(region)))
        for index in shuffled(positions, len(region), seed=seed, epoch=0).tolist():
            if len(found) == wanted:
                return found
            example = store[region[index]]
            segment = example.input_ids[1 : bisect.bisect_left(example.token_type_ids.tolist(), 1) - 1]
            for sentence in words.sentences(segment.tolist()):
                usable = len(sentence) >= _FEWEST_WORDS and sentence not in seen and words.swappable(sentence)
                if usable and len(found) < wanted:
                    seen.add(sentence)
                    found.append(sentence)
    return found


def _corrupted(sentence: Sentence, kind: Kind, words: _Words, alike: _AlikeWords, rng: np.random.Generator) -> Sentence:
    match kind:
        case "as_is":
            return sentence
        case "bigram_shift":
            return with_neighbours_swapped(sentence, words.swappable(sentence), rng)
        case "odd_word":
            at = int(rng.choice([index for index, word in enumerate(sentence) if word in alike]))
            return (*sentence[:at], alike.another(sentence[at], rng), *sentence[at + 1 :])
