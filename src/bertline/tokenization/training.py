"""Deterministic training of a vocabulary: WordPiece, with 64 bits for counts, and byte-level BPE.

The WordPiece trainer of the tokenizers library is not deterministic (four runs on one corpus gave four vocabularies)
and counts pairs in 32 bits, so bertline has its own.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import RobertaProcessing
from tokenizers.trainers import BpeTrainer

from bertline.foundation.errors import DataError
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import (
    CONTINUATION,
    MAX_WORD_CHARACTERS,
    ROBERTA_TOKENS,
    SPECIAL_TOKENS,
    OtherTokenizer,
)

_Places = npt.NDArray[np.int64]
# Pairs as numbers: that of the left symbol times 2**32, plus that of the right one.
_Keys = npt.NDArray[np.int64]
_BITS = 32
_GONE = -1


class Merger:
    """Words as sequences of subwords, and the counts of all neighbouring pairs, updated with each merge.

    All words lie one after another in one array of symbols. A merge writes the new symbol over the left one and takes
    the right one out of the chain of its word; a pair is found by its places, listed when it comes into being.
    """

    def __init__(self, words: Sequence[str], counts: Sequence[int]) -> None:
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
        self._weights = np.append(np.repeat(np.array(counts, np.int64), lengths), 0)
        self._before = np.where(np.append(starts, True), size, np.arange(-1, size))
        self._after = np.append(np.where(np.append(starts[1:], True), size, np.arange(1, size + 1)), size)
        del lengths, characters, starts, symbols  # memory is at its highest below
        self._is_merged = np.zeros(size + 1, bool)
        self._pair_counts: dict[int, int] = {}
        self._places: defaultdict[int, list[_Places]] = defaultdict(list)
        # Counts in the queue can be too high, never too low: a pair is pushed again when its count increases.
        self._queue: list[tuple[int, str, str, int]] = []
        first = np.flatnonzero(self._after[:-1] != size)
        keys = _keys(self._symbols[first], self._symbols[self._after[first]])
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
        # Different pairs can give the same subword (`un` + `##it`, `u` + `##nit`), which is one symbol.
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
        gone = (_keys(symbols[before[here]], left), _keys(right, symbols[behind[has_right]]))
        symbols[places], symbols[seconds] = number, _GONE
        after[places] = behind
        before[behind] = places
        before[self._outside] = self._outside
        on_left = before[here]
        come = np.concatenate((_keys(symbols[on_left], number), _keys(number, symbols[behind[has_right]])))
        self._list_places(come, np.concatenate((on_left, there)))
        self._change(
            np.concatenate((*gone, come)), np.concatenate((-left_weights, -right_weights, left_weights, right_weights))
        )
        self._pair_counts.pop(pair, None)
        return token

    def _list_places(self, keys: _Keys, places: _Places) -> None:
        for pair, where in _groups(keys):
            self._places[pair].append(places[where])

    def _change(self, keys: _Keys, differences: npt.NDArray[np.int64]) -> None:
        """Add differences to the counts of pairs; a pair may stand there several times."""
        distinct, places = np.unique(keys, return_inverse=True)
        totals = np.zeros(len(distinct), np.int64)
        np.add.at(totals, places, differences)
        counts, names = self._pair_counts, self._names
        for pair, difference in zip(distinct.tolist(), totals.tolist(), strict=True):
            counts[pair] = count = counts.get(pair, 0) + difference
            if difference > 0:
                heapq.heappush(self._queue, (-count, names[pair >> _BITS], names[pair & ((1 << _BITS) - 1)], pair))


def _keys(left: _Keys | int, right: _Keys | int) -> _Keys:
    return np.asarray((left << _BITS) | right, dtype=np.int64)


def _groups(keys: _Keys) -> list[tuple[int, _Places]]:
    """Return the distinct keys, each with the indices at which it stands."""
    order = np.argsort(keys, kind="stable")
    distinct, starts = np.unique(keys[order], return_index=True)
    stops = [*starts[1:], len(keys)]
    return [(key, order[start:stop]) for key, start, stop in zip(distinct.tolist(), starts, stops, strict=False)]


def _without_overlaps(places: _Places, after: _Places) -> _Places:
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

    The `max_alphabet` most frequent characters become tokens. Words with others are left out, because encoding turns
    the whole word into [UNK].

    Returns:
        Exactly `vocab_size` tokens, or with `or_fewer` those that the text supports: special tokens, characters,
        characters inside words (`##a`), then merges in order.

    Raises:
        DataError: The text does not support that many subwords, or the alphabet alone needs more.

    References: Sennrich et al. 2016, arXiv 1508.07909, section 3.2 (merging); Schuster and Nakajima 2012 (WordPiece).

    >>> counts = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
    >>> train_wordpiece(counts, vocab_size=27, min_frequency=2, max_alphabet=100)[-4:]
    ('##es', '##est', '##ow', 'low')
    """
    alphabet = set(_characters_by_count(word_counts)[:max_alphabet])
    # Sorted, so that the result does not depend on the order in which the words were counted.
    words = sorted(word for word in word_counts if len(word) <= MAX_WORD_CHARACTERS and alphabet.issuperset(word))
    inside = {character for word in words for character in word[1:]}
    tokens = [*SPECIAL_TOKENS, *sorted(alphabet), *(CONTINUATION + character for character in sorted(inside))]
    if len(tokens) > vocab_size:
        raise DataError(
            f"tokenizer.vocab_size is {vocab_size}, but the special tokens and the characters of the text alone need "
            f"{len(tokens)}. Raise tokenizer.vocab_size, or lower tokenizer.max_alphabet (now {max_alphabet}; rarer "
            "characters become [UNK])."
        )
    known = set(tokens)
    merger = Merger(words, [word_counts[word] for word in words])
    while len(tokens) < vocab_size:
        pair = merger.most_frequent(min_frequency)
        if pair is None:
            if or_fewer:
                break
            raise DataError(
                f"tokenizer.vocab_size is {vocab_size}, but the text supports only {len(tokens)} tokens: no other pair "
                f"stands there tokenizer.min_frequency={min_frequency} times, in words of the {max_alphabet} most "
                f"frequent characters (tokenizer.max_alphabet) and of at most {MAX_WORD_CHARACTERS} letters. Set "
                f"tokenizer.vocab_size to {len(tokens)} or less, raise tokenizer.max_alphabet, or give more text; a "
                "language written without spaces has to be segmented first."
            )
        token = merger.merge(pair)
        if token not in known:
            known.add(token)
            tokens.append(token)
    return tuple(tokens)


def left_out(word_counts: Mapping[str, int], max_alphabet: int) -> tuple[list[str], float]:
    """Return the characters that `max_alphabet` leaves out, and the share of the text in words that have one.

    >>> left_out({"aa": 3, "ab": 1, "c": 12}, max_alphabet=2)
    (['b'], 0.1)
    """
    rare = _characters_by_count(word_counts)[max_alphabet:]
    sizes = {word: count * len(word) for word, count in word_counts.items()}
    lost = sum(sizes[word] for word in sizes if len(word) <= MAX_WORD_CHARACTERS and not set(rare).isdisjoint(word))
    return rare, lost / max(1, sum(sizes.values()))


def _characters_by_count(word_counts: Mapping[str, int]) -> list[str]:
    counts: Counter[str] = Counter()
    for word, count in word_counts.items():
        for character in word:
            counts[character] += count
    return sorted(counts, key=lambda character: (-counts[character], character))


# In the order of their ids, from 0; the first four are RoBERTa's, whose mask is its last token.
_SPECIAL_BYTE_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def train_byte_bpe(texts: Iterable[str], *, vocab_size: int, min_frequency: int) -> Tokenizer:
    """Train a byte-level BPE with RoBERTa's layout, `<s> A </s></s> B </s>`, on whole documents.

    The same texts give the same tokenizer, in any order and with any number of threads: all bytes are in the alphabet,
    in their order, and of pairs with equal counts the one with the lower ids is merged. `vocab_size` includes the
    special tokens and the 256 bytes; a pair is merged if it occurs at least `min_frequency` times.

    Raises:
        DataError: The texts support fewer tokens.

    References: Radford et al. 2019, Language Models are Unsupervised Multitask Learners, section 2.2; Liu et al. 2019,
    arXiv 1907.11692 (RoBERTa), section 4.4.
    """
    backend = tokenizers.Tokenizer(BPE())
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=list(_SPECIAL_BYTE_TOKENS),
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    if (supported := backend.get_vocab_size()) < vocab_size:
        raise DataError(
            f"tokenizer.vocab_size is {vocab_size}, but the text supports only {supported} tokens with tokenizer."
            f"min_frequency={min_frequency}. Lower one of them, or give more text."
        )
    backend.decoder = ByteLevelDecoder()
    backend.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    # RoBERTa's mask takes the space before it, so that it stands for a word with its space.
    backend.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    return Tokenizer(OtherTokenizer(content=backend.to_str(), special_tokens=ROBERTA_TOKENS))
