"""Full sentences in one segment, as spans of the encoded corpus, for objectives that need no sentence pairs.

The sentences of a document are taken in order, as many as fit; a sequence never contains text of two documents. Only a
sentence that is longer than a whole sequence is split. No token is dropped.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from bertline.examples.encoding import EncodedCorpus
from bertline.examples.pairs import Span

SPECIAL_TOKENS_OF_SEGMENT = 2
"""Special tokens per sequence: [CLS] and [SEP]."""


class Segment(NamedTuple):
    """Text of a sequence."""

    span: Span
    is_short: bool
    """Whether the target length was a random, shorter one."""


def document_segments(
    corpus: EncodedCorpus, document: int, rng: random.Random, *, length: int, short_sequence_prob: float
) -> Iterator[Segment]:
    """Generate the segments of one document; a pure function of its arguments and the state of `rng`.

    Args:
        corpus: Encoded corpus.
        document: Index of the document.
        rng: Generator for this document only.
        length: Maximum sequence length in tokens, including special tokens.
        short_sequence_prob: Fraction of segments with a random, shorter target length.

    Example:
        >>> corpus = EncodedCorpus.from_lists([[[5, 6, 7], [8, 9], [10] * 9]])
        >>> found = document_segments(corpus, 0, random.Random(0), length=8, short_sequence_prob=0.0)
        >>> [(segment.span.start, segment.span.stop) for segment in found]
        [(0, 5), (5, 11), (11, 14)]

    References:
        Liu et al., RoBERTa (arXiv 1907.11692), section 4.2, DOC-SENTENCES.
    """
    first, last = (int(index) for index in corpus.document_starts[document : document + 2])
    bounds = corpus.sentence_starts[first : last + 1].tolist()
    max_tokens = length - SPECIAL_TOKENS_OF_SEGMENT
    start = bounds[0]
    while start < bounds[-1]:
        is_short = rng.random() < short_sequence_prob
        target = 2 + int(rng.random() * (max_tokens - 1)) if is_short else max_tokens
        stop = bounds[bisect_right(bounds, start + target) - 1]
        if stop <= start:  # not even one sentence, or what is left of one, fits the target
            stop = min(bounds[bisect_right(bounds, start)], start + max_tokens)
        yield Segment(Span(start, stop), is_short)
        start = stop
