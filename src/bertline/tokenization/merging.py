"""Merging of neighbouring subwords in all words at once, on arrays.

All words lie one after another in one array of symbols. A merge writes the new symbol over the left one and takes the
right one out of the chain of its word; a pair is found by its places, which are listed when it comes into being.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from bertline.tokenization.vocabulary import CONTINUATION

Places = npt.NDArray[np.int64]
Keys = npt.NDArray[np.int64]
"""Pairs as numbers: that of the left symbol times 2**32, plus that of the right one."""
_BITS = 32
_GONE = -1


class Merger:
    """Words as sequences of subwords, and the counts of all neighbouring pairs, updated with each merge.

    Args:
        words: Words with their counts; none is empty.
    """

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
        gone = (
            self._keys(symbols[before[here]], left),
            self._keys(right, symbols[behind[has_right]]),
        )
        symbols[places], symbols[seconds] = number, _GONE
        after[places] = behind
        before[behind] = places
        before[self._outside] = self._outside
        on_left = before[here]
        come = np.concatenate((self._keys(symbols[on_left], number), self._keys(number, symbols[behind[has_right]])))
        self._list_places(come, np.concatenate((on_left, there)))
        self._change(
            np.concatenate((*gone, come)),
            np.concatenate((-left_weights, -right_weights, left_weights, right_weights)),
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
