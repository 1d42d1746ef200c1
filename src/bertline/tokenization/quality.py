"""Exact word counts of a text, and the quality of a vocabulary on it: figures and samples for the manifest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from tokenizers.pre_tokenizers import BertPreTokenizer

from bertline.foundation.parallel import batches, ordered_map
from bertline.foundation.seeds import seed_for
from bertline.tokenization.tokenizer import Tokenizer, bert_normalizer
from bertline.tokenization.vocabulary import Vocabulary

_BATCH_CHARACTERS = 2_000_000


def count_words(sentences: Iterable[str], normalization: Vocabulary, *, num_workers: int) -> Counter[str]:
    """Count the words of BERT's pre-tokenizer: runs of letters and digits, and single punctuation marks.

    Args:
        sentences: Text; only a few batches are in memory at a time.
        normalization: Vocabulary whose normalisation is applied; its tokens are not used.
        num_workers: Number of processes; it does not affect the result.

    Returns:
        Normalised words with their counts (Python integers: no overflow on any corpus).

    Example:
        >>> plain = Vocabulary(tokens=(), lowercase=True)
        >>> counts = count_words(["The café, the end.", "THE END"], plain, num_workers=1)
        >>> sorted(counts.items())
        [(',', 1), ('.', 1), ('cafe', 1), ('end', 2), ('the', 3)]
    """
    counts: Counter[str] = Counter()
    work = partial(_count_batch, normalization=normalization)
    for batch in ordered_map(work, batches(sentences, size=len, most=_BATCH_CHARACTERS), num_workers=num_workers):
        counts.update(batch)
    return counts


def _count_batch(sentences: list[str], normalization: Vocabulary) -> Counter[str]:
    # BERT's normalisation and pre-tokenisation never look across a space, so each distinct string between spaces is
    # processed once and weighted by its count: several times faster than processing every sentence.
    stretches: Counter[str] = Counter()
    for sentence in sentences:
        stretches.update(sentence.split(" "))
    normalize = bert_normalizer(normalization).normalize_str
    pre_tokenize = BertPreTokenizer().pre_tokenize_str
    words: Counter[str] = Counter()
    for stretch, count in stretches.items():
        for word, _ in pre_tokenize(normalize(stretch)):
            words[word] += count
    return words


_MOST_FREQUENT = 20
_SAMPLED_WORDS = 30
_BATCH_WORDS = 10_000


def quality_report(tokenizer: Tokenizer, word_counts: Mapping[str, int]) -> dict[str, Any]:
    """Compute quality figures on a text, given as normalised words with counts; words are weighted by their counts.

    Returns:
        `words` and `distinct_words`; `tokens_per_word`, the mean number of tokens per word (1 is ideal; English with a
        vocabulary of 30,522 has about 1.2); `unknown_rate`, the fraction of words that become [UNK];
        `whole_word_rate`, the fraction of words that are one known token; `unknown_characters`, the most frequent
        characters that occur in no token, with counts; `sample`, words drawn by a hash from those with more than one
        token, with their tokens.
    """
    words = sorted(word_counts)
    total = sum(word_counts.values())
    num_tokens = num_unknown = num_whole = 0
    unknown_characters: Counter[str] = Counter()
    split: list[tuple[int, str, list[int]]] = []
    characters = set("".join(tokenizer.vocab))
    for start in range(0, len(words), _BATCH_WORDS):
        batch = words[start : start + _BATCH_WORDS]
        for word, ids in zip(batch, tokenizer.encode_literally(batch), strict=True):
            count = word_counts[word]
            num_tokens += count * len(ids)
            if tokenizer.unk_id in ids:
                num_unknown += count
                unknown_characters.update({character: count for character in word if character not in characters})
            elif len(ids) == 1:
                num_whole += count
            else:
                split.append((seed_for("quality sample", word), word, ids))
    ranked = sorted(unknown_characters.items(), key=lambda item: (-item[1], item[0]))
    return {
        "words": total,
        "distinct_words": len(words),
        "tokens_per_word": num_tokens / max(1, total),
        "unknown_rate": num_unknown / max(1, total),
        "whole_word_rate": num_whole / max(1, total),
        "unknown_characters": dict(ranked[:_MOST_FREQUENT]),
        "sample": {word: " ".join(tokenizer.tokens(ids)) for _, word, ids in sorted(split)[:_SAMPLED_WORDS]},
    }
