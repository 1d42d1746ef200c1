"""Deterministic training of a WordPiece vocabulary, with 64 bits for counts.

The trainer of the tokenizers library is not deterministic (four runs on one corpus gave four vocabularies) and counts
pairs in 32 bits, so bertline has its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from bertline.foundation.errors import DataError
from bertline.tokenization.merging import Merger
from bertline.tokenization.vocabulary import CONTINUATION, MAX_WORD_CHARACTERS, SPECIAL_TOKENS


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
    alphabet = _alphabet(word_counts, max_alphabet)
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
            raise DataError(_too_little_text(vocab_size, len(tokens), min_frequency))
        # Different pairs can give the same subword (`un` + `##it`, `u` + `##nit`), which is added only once.
        token = merger.merge(pair)
        if token not in known:
            known.add(token)
            tokens.append(token)
    return tuple(tokens)


def _too_little_text(vocab_size: int, supported: int, min_frequency: int) -> str:
    return (
        f"tokenizer.vocab_size is {vocab_size}, but the text supports only {supported} tokens (no pair of tokens is "
        f"left that stands there at least tokenizer.min_frequency={min_frequency} times). Set tokenizer.vocab_size to "
        f"{supported} or less, or give more text."
    )


def _alphabet(word_counts: Mapping[str, int], max_alphabet: int) -> set[str]:
    characters: Counter[str] = Counter()
    for word, count in word_counts.items():
        for character in word:
            characters[character] += count
    ranked = sorted(characters, key=lambda character: (-characters[character], character))
    return set(ranked[:max_alphabet])
