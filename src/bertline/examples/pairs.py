"""Sentence pairs for next-sentence prediction, as spans of the encoded corpus.

The way is that of google-research/bert, create_pretraining_data.py: sentences are gathered into a chunk of the wanted
length and cut at a random sentence into A and B; half of the time B is instead a random segment of another document,
and the sentences that A did not use begin the next chunk. The departures, each for a reason, are:

- A chunk takes at least two sentences where the document has them. In the reference a sentence as long as the chunk is
  alone in it, and then B is always random: more than half of all pairs are random, and A gives the answer away.
- The last sentence of a document, left alone, is cut at a random token if its true continuation is asked for.
- Whether a sequence is made short is drawn for each sequence, not once for a document; documents may be books.
- Documents are drawn as a whole: another document is always found, never the same one by exhausted tries.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from bertline.examples.config import ExamplesConfig
from bertline.examples.encoding import EncodedCorpus

NUM_SPECIAL_TOKENS = 3
"""[CLS], and [SEP] after each segment."""


class Span(NamedTuple):
    """Tokens `start` to `stop` of the encoded corpus."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """Number of tokens."""
        return self.stop - self.start


class Pair(NamedTuple):
    """Two segments, cut to fit."""

    a: Span
    b: Span
    next_sentence_label: int
    """1 = B is a random segment of another document."""
    is_short: bool
    """Made for a random shorter length."""
    num_truncated: int
    """Tokens cut off so that the pair fits."""


def document_pairs(
    corpus: EncodedCorpus, document: int, rng: random.Random, *, length: int, config: ExamplesConfig
) -> Iterator[Pair]:
    """The pairs of one document: a pure function of the corpus, the document and the state of `rng`.

    Args:
        corpus: It has at least two documents, unless `config.random_next_prob` is 0.
        document: Its index.
        rng: For this document alone.
        length: Most tokens of a sequence, with its special ones.
        config: `random_next_prob` and `short_sequence_prob`.

    References:
        Devlin et al. 2018, arXiv 1810.04805, section 3.1 (task 2) and A.2.
    """
    first, last = (int(index) for index in corpus.document_starts[document : document + 2])
    starts = corpus.sentence_starts[first : last + 1].tolist()
    max_tokens = length - NUM_SPECIAL_TOKENS
    num_sentences = len(starts) - 1
    sentence = 0
    while sentence < num_sentences:
        is_short = rng.random() < config.short_sequence_prob
        target = 2 + _below(rng, max_tokens - 1) if is_short else max_tokens
        end = sentence + 1
        while end < num_sentences and (end - sentence < 2 or starts[end] - starts[sentence] < target):
            end += 1
        if starts[end] - starts[sentence] < 2:
            return  # a document's last sentence, of one token: too little for two segments
        random_next = rng.random() < config.random_next_prob
        if end - sentence > 1:
            cut_sentence = sentence + 1 + _below(rng, end - sentence - 1)
            cut = starts[cut_sentence]
        elif random_next:
            cut_sentence, cut = end, starts[end]
        else:
            cut_sentence, cut = end, starts[sentence] + 1 + _below(rng, starts[end] - starts[sentence] - 1)
        a = Span(starts[sentence], cut)
        if random_next:
            b = _random_segment(corpus, document, rng, target - a.length)
            sentence = cut_sentence
        else:
            b = Span(cut, starts[end])
            sentence = end
        excess = max(0, a.length + b.length - max_tokens)
        yield Pair(*_truncated(a, b, excess, rng), int(random_next), is_short, excess)


def _random_segment(corpus: EncodedCorpus, document: int, rng: random.Random, num_tokens: int) -> Span:
    """Sentences of another document from a random one on, until there are `num_tokens` or the document ends."""
    other = _below(rng, corpus.num_documents - 1)
    other += other >= document
    first, last = (int(index) for index in corpus.document_starts[other : other + 2])
    sentence = first + _below(rng, last - first)
    start = int(corpus.sentence_starts[sentence])
    ends = corpus.sentence_starts[sentence + 1 : last + 1]
    enough = min(int(ends.searchsorted(start + num_tokens)), len(ends) - 1)
    return Span(start, int(ends[enough]))


def _truncated(a: Span, b: Span, excess: int, rng: random.Random) -> tuple[Span, Span]:
    """Cut `excess` tokens, each from the longer segment, from its front or its back with equal chance."""
    if not excess:
        return a, b
    # Token by token, the longer loses until both are equal, and then they take turns, B first.
    from_longer = min(excess, abs(a.length - b.length))
    rest = excess - from_longer
    from_a, from_b = rest // 2, rest - rest // 2
    if a.length > b.length:
        from_a += from_longer
    else:
        from_b += from_longer
    return _cut(a, from_a, rng), _cut(b, from_b, rng)


def _cut(span: Span, num_tokens: int, rng: random.Random) -> Span:
    from_front = rng.getrandbits(num_tokens).bit_count() if num_tokens else 0
    return Span(span.start + from_front, span.stop - (num_tokens - from_front))


def _below(rng: random.Random, stop: int) -> int:
    """A whole number from 0 to stop - 1. Only `random()` is promised to stay the same in every Python version."""
    return int(rng.random() * stop)
