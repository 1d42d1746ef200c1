"""Generation of examples: sentence pairs, or full sentences in one segment, one block of documents at a time.

The pairs are those of google-research/bert, create_pretraining_data.py: sentences are collected into a chunk of the
target length, which is split into A and B at a random sentence boundary; half of the time B is instead a random segment
of another document, and the sentences that A did not use start the next chunk. Differences, with reasons:

- A chunk has at least two sentences if the document has them left. In the reference code, a sentence as long as the
  chunk is alone in it, and then B is always random: more than half of all pairs are random, and A reveals the label.
- If the last sentence of a document is alone in its chunk and B is to be its true continuation, the sentence is split
  at a random token. Where many documents have few sentences (three in ten fewer than five) it is split in either case,
  and a random B is the end of another sentence, as long as the true one: else the full stop of A, or the lengths, would
  tell random pairs from true ones. Elsewhere such pairs are few; the figure `surface_accuracy` says what they tell.
- Short sequences are drawn per sequence, not per document, because documents may be books.
- The other document is drawn from all documents except the current one. The reference code tries a limited number of
  times and may end up with the same document. In a corpus of several languages it has the language of this one, where
  there is another, since the label could be told by the language alone. Where a source has a weight, its documents
  have copies, and a copy is no other document.

Pairs for sentence order (ALBERT, arXiv 1909.11942, section 3.1) are the true ones, half of them with A and B swapped.
A sentence that is alone in its chunk is left out: cut in two, it would tell the order by its full stop.

Full sentences are for objectives without pairs: the sentences of a document are taken in order, as many as fit; a
sequence never contains text of two documents, and only a sentence longer than a whole sequence is split.
"""

from __future__ import annotations

import dataclasses
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertline.corpus.document import Document, Split
from bertline.examples.config import ExamplesConfig
from bertline.examples.encoding import EncodedCorpus
from bertline.examples.store import Array, ExampleBlock
from bertline.foundation.seeds import seed_for
from bertline.tokenization.tokenizer import Layout

# Sentences of a document in random order, in runs that stay together.
#
# Two segments of a sequence then come from anywhere in the document: they have its subject in common, and seldom the
# words of one paragraph, by which neighbouring segments are recognised.


def shuffled(document: Document, *, together: int, seed: int) -> Document:
    """Return the document with its sentences in random order; a pure function of its arguments."""
    sentences = document.sentences
    rng = random.Random(seed_for(seed, "shuffle_sentences", document.id))
    runs = [sentences[start : start + together] for start in range(0, len(sentences), together)]
    # Python guarantees identical results in all versions only for `random()`.
    order = sorted((rng.random(), number) for number in range(len(runs)))
    return dataclasses.replace(document, sentences=tuple(one for _, number in order for one in runs[number]))


_BLOCK_TOKENS = 500_000
_TRIES = 16


class Span(NamedTuple):
    """Tokens of the encoded corpus from `start` up to `stop` (exclusive)."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """Number of tokens."""
        return self.stop - self.start


class Pair(NamedTuple):
    """The text of a sequence: two segments, truncated to the maximum length, or one."""

    a: Span
    b: Span | None
    """None for a sequence of one segment."""
    next_sentence_label: int
    """1 = B is a random segment of another document, or A and B are swapped."""
    is_short: bool
    """Whether the target length was a random, shorter one."""
    num_truncated: int
    """Number of tokens removed to fit the maximum length."""


@dataclass(frozen=True, slots=True)
class BlockOfDocuments:
    """A range of documents, and the number of the copy (out of `dupe_factor`) of their pairs."""

    documents: range
    copy: int


def blocks_of_documents(corpus: EncodedCorpus, num_copies: int) -> list[BlockOfDocuments]:
    """Split the corpus into blocks of about half a million tokens, in order, all of one copy before the next.

    Block boundaries depend on the corpus alone.
    """
    document_ends = corpus.sentence_starts[corpus.document_starts[1:]]
    number = document_ends // _BLOCK_TOKENS
    bounds = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), corpus.num_documents]
    ranges = [range(start, stop) for start, stop in pairwise(bounds)]
    return [BlockOfDocuments(documents, copy) for copy in range(num_copies) for documents in ranges]


def generate_block(
    block: BlockOfDocuments, *, corpus_folder: Path, split: Split, length: int, config: ExamplesConfig, layout: Layout
) -> tuple[ExampleBlock, Counter[str]]:
    """Generate the examples of a block of the encoded corpus in `corpus_folder`, and their counts.

    This is a pure function of the corpus, the configuration and the block.
    """
    corpus = _opened(corpus_folder)
    kind = "segments" if config.random_next_prob is None else "pairs"
    room = layout.room(length)
    pairs: list[Pair] = []
    for document in block.documents:
        rng = random.Random(seed_for(config.seed, kind, split, length, block.copy, document))
        if config.random_next_prob is None:
            short_prob = config.short_sequence_prob
            pairs.extend(document_segments(corpus, document, rng, room=room, short_sequence_prob=short_prob))
        else:
            pairs.extend(document_pairs(corpus, document, rng, room=room, config=config))
    examples = assemble(corpus.tokens, pairs, layout)
    counts = Counter(
        {
            "examples": len(pairs),
            "tokens": len(examples.input_ids),
            config.wrong_next: sum(pair.next_sentence_label for pair in pairs),
            "short": sum(pair.is_short for pair in pairs),
            "truncated_tokens": sum(pair.num_truncated for pair in pairs),
        }
    )
    return examples, counts


def assemble(tokens: Array, pairs: list[Pair], layout: Layout) -> ExampleBlock:
    """Concatenate `[CLS] A [SEP] B [SEP]` of all pairs, or `[CLS] A [SEP]` without B, into one block.

    Example:
        >>> pair = Pair(Span(0, 2), Span(2, 3), 0, False, 0)
        >>> bert, roberta = Layout((2,), (3,), (3,), 1), Layout((0,), (2, 2), (2,), 0)
        >>> assemble(np.array([10, 11, 12]), [pair], bert).input_ids.tolist()
        [2, 10, 11, 3, 12, 3]
        >>> assemble(np.array([10, 11, 12]), [pair], roberta).input_ids.tolist()
        [0, 10, 11, 2, 2, 12, 2]
    """
    # Without B, the span of B is empty and the layout has nothing between.
    bounds = np.array([(*pair.a, *(pair.b or (0, 0))) for pair in pairs], dtype=np.int64).reshape(len(pairs), 4)
    a_starts, a_stops, b_starts, b_stops = bounds.T
    a_lengths, b_lengths = a_stops - a_starts, b_stops - b_starts
    lengths = a_lengths + b_lengths + layout.num_special
    ends = np.cumsum(lengths)
    firsts = ends - lengths + len(layout.before)  # of A, and behind it
    seconds = firsts + a_lengths + len(layout.between)  # of B
    input_ids = np.empty(lengths.sum(), dtype=tokens.dtype)
    for places, special in (
        (ends - lengths, layout.before),
        (firsts + a_lengths, layout.between),
        (ends - len(layout.after), layout.after),
    ):
        for offset, token in enumerate(special):
            input_ids[places + offset] = token
    input_ids[_indices(firsts, a_lengths)] = tokens[_indices(a_starts, a_lengths)]
    input_ids[_indices(seconds, b_lengths)] = tokens[_indices(b_starts, b_lengths)]
    labels = np.array([pair.next_sentence_label for pair in pairs], dtype=np.int64)
    return ExampleBlock(input_ids, lengths, seconds - (ends - lengths) if layout.between else lengths, labels)


def _indices(starts: Array, lengths: Array) -> Array:
    """Return the concatenated ranges `start, ..., start + length - 1` of all starts and lengths.

    Example:
        >>> _indices(np.array([10, 50]), np.array([3, 2])).tolist()
        [10, 11, 12, 50, 51]
    """
    gone_before = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(starts - gone_before, lengths)


@lru_cache(maxsize=1)
def _opened(folder: Path) -> EncodedCorpus:
    return EncodedCorpus.open(folder)


def document_pairs(
    corpus: EncodedCorpus, document: int, rng: random.Random, *, room: int, config: ExamplesConfig
) -> Iterator[Pair]:
    """Generate the pairs of one document; a pure function of its arguments and the state of `rng`.

    References:
        Devlin et al. 2018, arXiv 1810.04805, section 3.1 (task 2) and A.2.
    """
    assert config.random_next_prob is not None  # else sequences have one segment
    first, last = (int(index) for index in corpus.document_starts[document : document + 2])
    starts = corpus.sentence_starts[first : last + 1].tolist()
    num_sentences = len(starts) - 1
    swapped_prob = config.swapped_prob or 0.0
    alike = corpus.has_short_documents and config.random_next_prob < 1
    sentence = 0
    while sentence < num_sentences:
        is_short = rng.random() < config.short_sequence_prob
        target = 2 + _below(rng, room - 1) if is_short else room
        end = sentence + 1
        while end < num_sentences and (end - sentence < 2 or starts[end] - starts[sentence] < target):
            end += 1
        if starts[end] - starts[sentence] < 2:
            return  # the last sentence of the document has one token, too few for two segments
        if swapped_prob > 0 and end - sentence == 1:
            return
        random_next = rng.random() < config.random_next_prob
        if end - sentence > 1:
            cut_sentence = sentence + 1 + _below(rng, end - sentence - 1)
            cut = starts[cut_sentence]
        elif random_next and not alike:
            cut_sentence, cut = end, starts[end]
        else:
            cut_sentence, cut = end, starts[sentence] + 1 + _below(rng, starts[end] - starts[sentence] - 1)
        a = Span(starts[sentence], cut)
        if random_next:
            if alike and end - sentence == 1:
                b = _random_end(corpus, document, rng, starts[end] - cut)
            else:
                b = _random_segment(corpus, document, rng, starts[end] - cut if alike else target - a.length)
            sentence = cut_sentence
        else:
            b = Span(cut, starts[end])
            sentence = end
        is_swapped = swapped_prob > 0 and rng.random() < swapped_prob
        if is_swapped:
            a, b = b, a
        excess = max(0, a.length + b.length - room)
        yield Pair(*_truncated(a, b, excess, rng), int(random_next or is_swapped), is_short, excess)


def _random_segment(corpus: EncodedCorpus, document: int, rng: random.Random, num_tokens: int) -> Span:
    """Return sentences of another document, from a random one up to `num_tokens` tokens or the document's end."""
    sentence, last = _random_sentence(corpus, document, rng)
    starts = corpus.sentence_starts.data
    start = starts[sentence]
    return Span(start, starts[bisect_left(starts, start + num_tokens, sentence + 1, last)])


def _random_end(corpus: EncodedCorpus, document: int, rng: random.Random, num_tokens: int) -> Span:
    """Return the last `num_tokens` tokens of a sentence of another document, which has more if one is soon found."""
    starts = corpus.sentence_starts.data
    longest = Span(0, 0)
    for _ in range(_TRIES):
        sentence, _ = _random_sentence(corpus, document, rng)
        found = Span(starts[sentence], starts[sentence + 1])
        longest = max(longest, found, key=lambda span: span.length)
        if longest.length > num_tokens:
            break
    return Span(max(longest.start, longest.stop - num_tokens), longest.stop)


def _random_sentence(corpus: EncodedCorpus, document: int, rng: random.Random) -> tuple[int, int]:
    """Return a random sentence of another document, and where the sentences of that document end."""
    other = _other_document(corpus, document, rng)
    # Views of memory give Python's integers, one by one several times as fast as arrays.
    document_starts = corpus.document_starts.data
    first, last = document_starts[other], document_starts[other + 1]
    return first + _below(rng, last - first), last


def _other_document(corpus: EncodedCorpus, document: int, rng: random.Random) -> int:
    """Return a random document other than the given one and its copies, of the same language if there is one."""
    first, stop = corpus.copies_of(document)
    copies = stop - first
    if corpus.languages is not None and (choices := corpus.languages.num_others(first, copies=copies)):
        return corpus.languages.other(first, _below(rng, choices), copies=copies)
    other = _below(rng, corpus.num_documents - copies)
    return other + copies * (other >= first)


def _truncated(a: Span, b: Span, excess: int, rng: random.Random) -> tuple[Span, Span]:
    """Remove `excess` tokens, each from the longer segment, from its front or back with equal probability."""
    if not excess:
        return a, b
    # Equivalent to removing single tokens: from the longer segment until both are equal, then in turns, B first.
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
    """Return a random integer from 0 to `stop - 1`.

    Python guarantees identical results in all versions only for `random()`.
    """
    return int(rng.random() * stop)


def document_segments(
    corpus: EncodedCorpus, document: int, rng: random.Random, *, room: int, short_sequence_prob: float
) -> Iterator[Pair]:
    """Generate the segments of one document; a pure function of its arguments and the state of `rng`.

    Example:
        >>> corpus = EncodedCorpus.from_lists([[[5, 6, 7], [8, 9], [10] * 9]])
        >>> found = document_segments(corpus, 0, random.Random(0), room=6, short_sequence_prob=0.0)
        >>> [(one.a.start, one.a.stop) for one in found]
        [(0, 5), (5, 11), (11, 14)]

    References:
        Liu et al., RoBERTa (arXiv 1907.11692), section 4.2, DOC-SENTENCES.
    """
    first, last = (int(index) for index in corpus.document_starts[document : document + 2])
    bounds = corpus.sentence_starts[first : last + 1].tolist()
    start = bounds[0]
    while start < bounds[-1]:
        is_short = rng.random() < short_sequence_prob
        target = 2 + int(rng.random() * (room - 1)) if is_short else room
        stop = bounds[bisect_right(bounds, start + target) - 1]
        if stop <= start:  # not even one sentence, or what is left of one, fits the target
            stop = min(bounds[bisect_right(bounds, start)], start + room)
        yield Pair(Span(start, stop), None, 0, is_short, 0)
        start = stop
