"""Training a WordPiece vocabulary: the same bytes on every run, counts of any size.

The trainer of the tokenizers library is not deterministic (four runs on one corpus gave four vocabularies) and counts
pairs in 32 bits, so bertline has its own.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise

from bertline.foundation.errors import DataError
from bertline.tokenization.vocabulary import CONTINUATION, MAX_WORD_CHARACTERS, SPECIAL_PIECES

Pair = tuple[str, str]


def train_wordpiece(
    word_counts: Mapping[str, int], *, vocab_size: int, min_frequency: int, max_alphabet: int
) -> tuple[str, ...]:
    """Learn pieces by merging, again and again, the pair of neighbouring pieces that is seen most often.

    Pieces are scored by count, as in byte-pair encoding and in the library's WordPieceTrainer (Google never published
    the trainer of BERT's own vocabulary). Equal counts go to the pair that is first in alphabetical order.

    Args:
        word_counts: Normalised words with their counts.
        vocab_size: Pieces wanted, the five special ones included.
        min_frequency: A pair seen less often is not merged.
        max_alphabet: The most frequent characters that become pieces. Words with other characters are left out here,
            as encoding turns the whole of such a word into [UNK].

    Returns:
        Exactly `vocab_size` pieces: special ones, characters, characters inside words (`##a`), then merges in order.

    Raises:
        DataError: The text does not support that many pieces, or the alphabet alone needs more.

    References:
        Sennrich et al. 2016, arXiv 1508.07909, section 3.2 (merging); Schuster and Nakajima 2012 (WordPiece).

    Example:
        >>> counts = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
        >>> train_wordpiece(counts, vocab_size=27, min_frequency=2, max_alphabet=100)[-4:]
        ('##es', '##est', '##ow', 'low')
    """
    alphabet = _alphabet(word_counts, max_alphabet)
    words = {word: count for word, count in word_counts.items() if len(word) <= MAX_WORD_CHARACTERS}
    # Sorted, so that nothing below depends on the order in which the words were counted.
    words = {word: words[word] for word in sorted(words) if alphabet.issuperset(word)}
    inside = {character for word in words for character in word[1:]}
    pieces = [*SPECIAL_PIECES, *sorted(alphabet), *(CONTINUATION + character for character in sorted(inside))]
    if len(pieces) > vocab_size:
        raise DataError(
            f"tokenizer.vocab_size is {vocab_size}, but the special pieces and the characters of the text alone need "
            f"{len(pieces)}. Raise tokenizer.vocab_size, or lower tokenizer.max_alphabet (now {max_alphabet}; rarer "
            "characters become [UNK])."
        )
    known = set(pieces)
    merger = _Merger(words)
    while len(pieces) < vocab_size:
        pair = merger.most_frequent(min_frequency)
        if pair is None:
            raise DataError(
                f"tokenizer.vocab_size is {vocab_size}, but the text supports only {len(pieces)} pieces (no pair of "
                f"pieces is left that stands there at least tokenizer.min_frequency={min_frequency} times). Set "
                f"tokenizer.vocab_size to {len(pieces)} or less, or give more text."
            )
        # Two different pairs can join to the same piece (`un` + `##it`, `u` + `##nit`): it is listed once.
        piece = merger.merge(pair)
        if piece not in known:
            known.add(piece)
            pieces.append(piece)
    return tuple(pieces)


def _alphabet(word_counts: Mapping[str, int], max_alphabet: int) -> set[str]:
    characters: Counter[str] = Counter()
    for word, count in word_counts.items():
        for character in word:
            characters[character] += count
    ranked = sorted(characters, key=lambda character: (-characters[character], character))
    return set(ranked[:max_alphabet])


class _Merger:
    """Words as sequences of pieces, and the count of every pair of neighbours, kept up to date as pairs are merged."""

    def __init__(self, words: Mapping[str, int]) -> None:
        self._counts = list(words.values())
        self._words = [[word[0], *(CONTINUATION + character for character in word[1:])] for word in words]
        self._pair_counts: dict[Pair, int] = defaultdict(int)
        # Which words a pair is in. A word stays listed when a merge has taken the pair from it, and may be listed
        # twice: `merge` looks, and that is cheaper than keeping sets exact.
        self._words_with: dict[Pair, list[int]] = defaultdict(list)
        for index, (word, count) in enumerate(zip(self._words, self._counts, strict=True)):
            for pair in pairwise(word):
                self._pair_counts[pair] += count
                self._words_with[pair].append(index)
        # Counts in the queue can be too high, never too low: a pair that gained was pushed again.
        self._queue = [(-count, pair) for pair, count in self._pair_counts.items()]
        heapq.heapify(self._queue)

    def most_frequent(self, min_frequency: int) -> Pair | None:
        """The pair with the highest count, first in alphabetical order among equals; None if all are too rare."""
        while self._queue:
            negative_count, pair = heapq.heappop(self._queue)
            count = self._pair_counts[pair]
            if count == -negative_count and count >= min_frequency:
                return pair
            if count >= min_frequency:
                heapq.heappush(self._queue, (-count, pair))
        return None

    def merge(self, pair: Pair) -> str:
        """Join the pair wherever it stands and return the new piece."""
        left, right = pair
        piece = left + right.removeprefix(CONTINUATION)
        changes: dict[Pair, int] = defaultdict(int)
        for index in dict.fromkeys(self._words_with.pop(pair)):
            old = self._words[index]
            new = _joined(old, left, right, piece)
            if len(new) == len(old):
                continue
            self._words[index] = new
            count = self._counts[index]
            for gone in pairwise(old):
                changes[gone] -= count
            for come in pairwise(new):
                changes[come] += count
                if piece in come:
                    self._words_with[come].append(index)
        for changed, difference in changes.items():
            self._pair_counts[changed] += difference
            if difference > 0:
                heapq.heappush(self._queue, (-self._pair_counts[changed], changed))
        del self._pair_counts[pair]
        return piece


def _joined(word: list[str], left: str, right: str, piece: str) -> list[str]:
    """The word with every `left`, `right` replaced by `piece`, from left to right."""
    joined: list[str] = []
    position = 0
    while position < len(word):
        if word[position] == left and word[position + 1 : position + 2] == [right]:
            joined.append(piece)
            position += 2
        else:
            joined.append(word[position])
            position += 1
    return joined
