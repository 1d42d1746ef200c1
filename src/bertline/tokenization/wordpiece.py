"""Deterministic training of a WordPiece vocabulary, with 64 bits for counts.

The trainer of the tokenizers library is not deterministic (four runs on one corpus gave four vocabularies) and counts
pairs in 32 bits, so bertline has its own.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertline.foundation.errors import DataError
from bertline.tokenization.vocabulary import CONTINUATION, MAX_WORD_CHARACTERS, SPECIAL_TOKENS

# Merging of neighbouring subwords in all words at once, on arrays.
#
# All words lie one after another in one array of symbols. A merge writes the new symbol over the left one and takes the
# right one out of the chain of its word; a pair is found by its places, which are listed when it comes into being.

Places = npt.NDArray[np.int64]
Keys = npt.NDArray[np.int64]
"""Pairs as numbers: that of the left symbol times 2**32, plus that of the right one."""
_BITS = 32
_GONE = -1


class Merger:
    """Words as sequences of subwords, and the counts of all neighbouring pairs, updated with each merge."""

    def __init__(self, words: Mapping[str, int]) -> None:
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        characters = np.frombuffer("".join(words).encode("utf-32-le", "surrogatepass"), np.uint32)
        size = len(characters)
        starts = np.zeros(size, bool)
        starts[np.cumsum(lengths) - lengths] = True
        distinct, symbols = np.unique(characters.astype(np.int64) * 2 + starts, return_inverse=True)
        self._names = [("" if code % 2 else CONTINUATION) + chr(code // 2) for code in distinct.tolist()]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        # One place more stands for what is before a word and after it.
        self._outside = size
        self._symbols = np.append(symbols, _GONE)
        self._weights = np.append(np.repeat(np.fromiter(words.values(), np.int64, len(words)), lengths), 0)
        self._before = np.where(np.append(starts, True), size, np.arange(-1, size))
        self._after = np.append(np.where(np.append(starts[1:], True), size, np.arange(1, size + 1)), size)
        self._is_merged = np.zeros(size + 1, bool)
        self._pair_counts: dict[int, int] = {}
        self._places: defaultdict[int, list[Places]] = defaultdict(list)
        # Counts in the queue can be too high, never too low: a pair is pushed again when its count increases.
        self._queue: list[tuple[int, str, str, int]] = []
        first = np.flatnonzero(self._after[:-1] != size)
        keys = self._keys(self._symbols[first], self._symbols[self._after[first]])
        self._list_places(keys, first)
        self._change(keys, self._weights[first])

    def most_frequent(self, min_frequency: int) -> int | None:
        """Return the pair with the highest count, ties in alphabetical order; None if all counts are too low."""
        while self._queue:
            negative_count, left, right, pair = heapq.heappop(self._queue)
            count = self._pair_counts.get(pair, 0)
            if count == -negative_count and count >= min_frequency:
                return pair
            if count >= min_frequency:
                heapq.heappush(self._queue, (-count, left, right, pair))
        return None

    def merge(self, pair: int) -> str:
        """Merge all occurrences of the pair and return the new subword."""
        left, right = pair >> _BITS, pair & ((1 << _BITS) - 1)
        token = self._names[left] + self._names[right].removeprefix(CONTINUATION)
        # Different pairs can give the same subword, which is one symbol.
        number = self._numbers.setdefault(token, len(self._names))
        if number == len(self._names):
            self._names.append(token)
        symbols, before, after, weights = self._symbols, self._before, self._after, self._weights
        # A place stays listed when a merge next to it took the pair away. Sorted: from left to right in each word.
        places = np.unique(np.concatenate(self._places.pop(pair)))
        places = places[(symbols[places] == left) & (symbols[after[places]] == right)]
        if left == right:
            places = _without_overlaps(places, after)
        seconds = after[places]
        behind = after[seconds]
        self._is_merged[places] = True
        has_right = (behind != self._outside) & ~self._is_merged[behind]  # else it is the left of the next one
        self._is_merged[places] = False
        has_left = before[places] != self._outside
        here, there = places[has_left], places[has_right]
        left_weights, right_weights = weights[here], weights[there]
        gone = (self._keys(symbols[before[here]], left), self._keys(right, symbols[behind[has_right]]))
        symbols[places], symbols[seconds] = number, _GONE
        after[places] = behind
        before[behind] = places
        before[self._outside] = self._outside
        on_left = before[here]
        come = np.concatenate((self._keys(symbols[on_left], number), self._keys(number, symbols[behind[has_right]])))
        self._list_places(come, np.concatenate((on_left, there)))
        self._change(
            np.concatenate((*gone, come)), np.concatenate((-left_weights, -right_weights, left_weights, right_weights))
        )
        self._pair_counts.pop(pair, None)
        return token

    def _keys(self, left: Keys | int, right: Keys | int) -> Keys:
        return np.asarray((left << _BITS) | right, dtype=np.int64)

    def _list_places(self, keys: Keys, places: Places) -> None:
        for pair, where in _groups(keys):
            self._places[pair].append(places[where])

    def _change(self, keys: Keys, differences: npt.NDArray[np.int64]) -> None:
        """Add differences to the counts of pairs; a pair may stand there several times."""
        if not len(keys):
            return
        order = np.argsort(keys)
        ordered = keys[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        totals = np.add.reduceat(differences[order], starts)
        counts, names = self._pair_counts, self._names
        for pair, difference in zip(ordered[starts].tolist(), totals.tolist(), strict=True):
            counts[pair] = count = counts.get(pair, 0) + difference
            if difference > 0:
                heapq.heappush(self._queue, (-count, names[pair >> _BITS], names[pair & ((1 << _BITS) - 1)], pair))


def _groups(keys: Keys) -> list[tuple[int, Places]]:
    """Return the distinct keys, each with the indices at which it stands."""
    if not len(keys):
        return []
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    bounds = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1], [True]))).tolist()
    distinct = ordered[bounds[:-1]].tolist()
    return [(key, order[start:stop]) for key, start, stop in zip(distinct, bounds, bounds[1:], strict=False)]


def _without_overlaps(places: Places, after: Places) -> Places:
    """Return places, from left to right, without those whose symbol is the second one of the place before."""
    taken: list[int] = []
    second = -1
    for place, following in zip(places.tolist(), after[places].tolist(), strict=True):
        if place != second:
            taken.append(place)
            second = following
    return np.array(taken, dtype=np.int64)


def train_wordpiece(
    word_counts: Mapping[str, int], *, vocab_size: int, min_frequency: int, max_alphabet: int, or_fewer: bool = False
) -> tuple[str, ...]:
    """Learn subwords by repeatedly merging the most frequent pair of neighbouring subwords.

    Pairs are ranked by count, as in byte-pair encoding and in the WordPieceTrainer of the tokenizers library (Google
    never published the trainer of BERT's vocabulary). Ties go to the pair that is first in alphabetical order.

    Args:
        word_counts: Normalised words with their counts.
        vocab_size: Number of tokens, including the five special tokens.
        min_frequency: Minimum count of a pair to be merged.
        max_alphabet: Maximum number of characters, the most frequent ones, that become tokens. Words with other
            characters are left out, because encoding turns the whole word into [UNK].
        or_fewer: Whether a text that does not support that many subwords gives those that it supports.

    Returns:
        Exactly `vocab_size` tokens, or fewer if asked: special tokens, characters, characters inside words (`##a`),
        then merges in order.

    Raises:
        DataError: The text does not support that many subwords, or the alphabet alone needs more.

    References:
        Sennrich et al. 2016, arXiv 1508.07909, section 3.2 (merging); Schuster and Nakajima 2012 (WordPiece).

    Example:
        >>> counts = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
        >>> train_wordpiece(counts, vocab_size=27, min_frequency=2, max_alphabet=100)[-4:]
        ('##es', '##est', '##ow', 'low')
    """
    alphabet = set(_by_count(_characters(word_counts))[:max_alphabet])
    words = {word: count for word, count in word_counts.items() if len(word) <= MAX_WORD_CHARACTERS}
    # Sorted, so that the result does not depend on the order in which the words were counted.
    words = {word: words[word] for word in sorted(words) if alphabet.issuperset(word)}
    inside = {character for word in words for character in word[1:]}
    tokens = [*SPECIAL_TOKENS, *sorted(alphabet), *(CONTINUATION + character for character in sorted(inside))]
    if len(tokens) > vocab_size:
        raise DataError(
            f"tokenizer.vocab_size is {vocab_size}, but the special tokens and the characters of the text alone need "
            f"{len(tokens)}. Raise tokenizer.vocab_size, or lower tokenizer.max_alphabet (now {max_alphabet}; rarer "
            "characters become [UNK])."
        )
    known = set(tokens)
    merger = Merger(words)
    while len(tokens) < vocab_size:
        pair = merger.most_frequent(min_frequency)
        if pair is None and or_fewer:
            break
        if pair is None:
            raise DataError(
                f"tokenizer.vocab_size is {vocab_size}, but the text supports only {len(tokens)} tokens: no other pair "
                f"stands there tokenizer.min_frequency={min_frequency} times, in words of the {max_alphabet} most "
                f"frequent characters (tokenizer.max_alphabet) and of at most {MAX_WORD_CHARACTERS} letters. Set "
                f"tokenizer.vocab_size to {len(tokens)} or less, raise tokenizer.max_alphabet, or give more text; a "
                "language written without spaces has to be segmented first."
            )
        # Different pairs can give the same subword (`un` + `##it`, `u` + `##nit`), which is added only once.
        token = merger.merge(pair)
        if token not in known:
            known.add(token)
            tokens.append(token)
    return tuple(tokens)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Words of a text that become [UNK], and why; shares are of all characters."""

    num_characters: int
    """Number of different characters of the text."""
    rare: str
    """Those that the alphabet leaves out, the most frequent first."""
    rare_share: float
    """Share of words with one of these."""
    too_long_share: float
    """Share of words of over `MAX_WORD_CHARACTERS` characters."""


def left_out(word_counts: Mapping[str, int], max_alphabet: int) -> LeftOut:
    """Return what of a text no vocabulary can have, and what `max_alphabet` leaves out of it.

    Example:
        >>> left_out({"aa": 3, "ab": 1, "x" * 102: 1}, max_alphabet=2)  # doctest: +ELLIPSIS
        LeftOut(num_characters=3, rare='b', rare_share=0.01818..., too_long_share=0.92727...)
    """
    characters = _characters(word_counts)
    ranked = _by_count(characters)
    alphabet = set(ranked[:max_alphabet])
    too_long = sum(count * len(word) for word, count in word_counts.items() if len(word) > MAX_WORD_CHARACTERS)
    rare = sum(
        count * len(word)
        for word, count in word_counts.items()
        if len(word) <= MAX_WORD_CHARACTERS and not alphabet.issuperset(word)
    )
    return LeftOut(
        num_characters=len(characters),
        rare="".join(ranked[max_alphabet:]),
        rare_share=rare / max(1, characters.total()),
        too_long_share=too_long / max(1, characters.total()),
    )


def _characters(word_counts: Mapping[str, int]) -> Counter[str]:
    characters: Counter[str] = Counter()
    for word, count in word_counts.items():
        for character in word:
            characters[character] += count
    return characters


def _by_count(counts: Mapping[str, int]) -> list[str]:
    return sorted(counts, key=lambda character: (-counts[character], character))
