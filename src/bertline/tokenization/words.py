"""Exact, parallel word counts of a corpus, independent of the order of processing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from tokenizers.pre_tokenizers import BertPreTokenizer

from bertline.foundation.parallel import ordered_map
from bertline.tokenization.tokenizer import bert_normalizer
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
    for batch in ordered_map(work, _batches(sentences), num_workers=num_workers):
        counts.update(batch)
    return counts


def _batches(sentences: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for sentence in sentences:
        batch.append(sentence)
        size += len(sentence)
        if size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


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
