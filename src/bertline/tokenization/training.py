"""Deterministic training of a vocabulary: WordPiece, with exact counts, and byte-level BPE.

The WordPiece trainer of the tokenizers library is not deterministic (four runs on one corpus gave four vocabularies)
and counts pairs in 32 bits, so bertline has its own.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

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

_Pair = tuple[str, str]


class Merger:
    """Words as sequences of subwords, and the counts of all neighbouring pairs, updated with each merge."""

    def __init__(self, word_counts: Mapping[str, int]) -> None:
        self._word_counts = word_counts
        self._subwords = {word: [word[0], *(CONTINUATION + letter for letter in word[1:])] for word in word_counts}
        self._pair_counts: Counter[_Pair] = Counter()
        # A word stays listed when a merge took its pair away.
        self._words: defaultdict[_Pair, list[str]] = defaultdict(list)
        for word, subwords in self._subwords.items():
            for pair in pairwise(subwords):
                self._pair_counts[pair] += word_counts[word]
                self._words[pair].append(word)
        # Counts in the queue can be too high, never too low: a pair is pushed again when its count increases.
        self._queue = [(-count, pair) for pair, count in self._pair_counts.items()]
        heapq.heapify(self._queue)

    def most_frequent(self, min_frequency: int) -> _Pair | None:
        """Return the pair with the highest count, ties in alphabetical order; None if all counts are too low."""
        while self._queue:
            negative_count, pair = heapq.heappop(self._queue)
            count = self._pair_counts[pair]
            if count == -negative_count and count >= min_frequency:
                return pair
            if count >= min_frequency:
                heapq.heappush(self._queue, (-count, pair))
        return None

    def merge(self, pair: _Pair) -> str:
        """Merge all occurrences of the pair, from left to right in each word, and return the new subword."""
        left, right = pair
        token = left + right.removeprefix(CONTINUATION)
        increased: set[_Pair] = set()
        for word in self._words.pop(pair):
            count, subwords = self._word_counts[word], self._subwords[word]
            place = 0
            while place < len(subwords) - 1:
                if subwords[place] == left and subwords[place + 1] == right:
                    begin = max(place - 1, 0)
                    for old in pairwise(subwords[begin : place + 3]):
                        self._pair_counts[old] -= count
                    subwords[place : place + 2] = [token]
                    for new in pairwise(subwords[begin : place + 2]):
                        self._pair_counts[new] += count
                        self._words[new].append(word)
                        increased.add(new)
                place += 1
        for new in increased:
            heapq.heappush(self._queue, (-self._pair_counts[new], new))
        return token


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
    words = [word for word in word_counts if len(word) <= MAX_WORD_CHARACTERS and alphabet.issuperset(word)]
    inside = {character for word in words for character in word[1:]}
    tokens = [*SPECIAL_TOKENS, *sorted(alphabet), *(CONTINUATION + character for character in sorted(inside))]
    if len(tokens) > vocab_size:
        raise DataError(
            f"tokenizer.vocab_size is {vocab_size}, but the special tokens and the characters of the text alone need "
            f"{len(tokens)}. Raise tokenizer.vocab_size, or lower tokenizer.max_alphabet (now {max_alphabet}; rarer "
            "characters become [UNK])."
        )
    known = set(tokens)
    merger = Merger({word: word_counts[word] for word in words})
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
