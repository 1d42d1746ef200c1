"""New words for the vocabulary of a checkpoint: those of the corpus that it cuts into the most tokens.

Old tokens keep their ids, and words come behind them, so that the checkpoint's embeddings stay where they are.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import CONTINUATION, MAX_WORD_CHARACTERS, Vocabulary

_OF_UNKNOWN = 2
"""Tokens that a word which becomes [UNK] counts as: to know it is worth one token for each time that it occurs."""


def words_to_add(
    vocabulary: Vocabulary, word_counts: Mapping[str, int], *, num_new: int, min_frequency: int
) -> tuple[str, ...]:
    """Choose the words whose addition saves most tokens of the text, given those chosen before them.

    A word saves its count times the number of its tokens less one. Words are chosen one by one, each time with the
    tokens that it has by then: after "tokenizer", "tokenizers" is two tokens and saves less. Numbers are left out: as
    whole words they say nothing of other numbers. Ties go to the word that is first in alphabetical order.

    Args:
        vocabulary: The old vocabulary.
        word_counts: Words of the text, normalised as the vocabulary says, with their counts.
        num_new: Most words to choose; there are fewer if the text has fewer.
        min_frequency: Least count of a word.

    Returns:
        Words that are not in the vocabulary, in the order of choice.

    Example:
        >>> old = Vocabulary(tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "##c"), lowercase=True)
        >>> words_to_add(old, {"abc": 9, "abcb": 4, "ab": 9, "a": 99}, num_new=2, min_frequency=2)
        ('abc', 'ab')
    """
    cutter = _Cutter(vocabulary.tokens)
    candidates = (
        word
        for word, count in word_counts.items()
        if count >= min_frequency and len(word) <= MAX_WORD_CHARACTERS and not word.isdecimal()
    )
    queue = [(-word_counts[word] * (cutter.num_tokens(word) - 1), word) for word in candidates]
    queue = [entry for entry in queue if entry[0] < 0]
    heapq.heapify(queue)
    chosen: list[str] = []
    while queue and len(chosen) < num_new:
        negative, word = heapq.heappop(queue)
        # What a word saves almost never grows by the choice of others, so only the first of the queue is looked at.
        now = -word_counts[word] * (cutter.num_tokens(word) - 1)
        if now == negative:
            cutter.add(word)
            chosen.append(word)
        elif now < 0:
            heapq.heappush(queue, (now, word))
    return tuple(chosen)


class _Cutter:
    """Counts the tokens of words under a vocabulary that grows by whole words."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._beginnings = set(tokens)
        self._continuations = {token.removeprefix(CONTINUATION) for token in tokens if token.startswith(CONTINUATION)}
        self._longest = max(map(len, tokens))

    def add(self, word: str) -> None:
        self._beginnings.add(word)
        self._longest = max(self._longest, len(word))

    def num_tokens(self, word: str) -> int:
        number, start, table = 0, 0, self._beginnings
        while start < len(word):
            for stop in range(min(len(word), start + self._longest), start, -1):
                if word[start:stop] in table:
                    break
            else:
                return _OF_UNKNOWN
            number, start, table = number + 1, stop, self._continuations
        return number


def parts_of_new_tokens(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """Return the old ids that stood for each new token: what its embedding begins as a mean of.

    Args:
        old: Tokenizer of the checkpoint.
        new: One whose vocabulary begins with the old one.

    Returns:
        For each token of `new` behind those of `old`, at least one old id.
    """
    words = [token.removeprefix(CONTINUATION) for token in new.vocab[old.vocab_size :]]
    return [ids or [old.unk_id] for ids in old.encode_literally(words)]
