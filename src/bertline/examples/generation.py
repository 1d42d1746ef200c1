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

import random
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertline.corpus.document import Split
from bertline.examples.config import ExamplesConfig
from bertline.examples.encoding import DocumentPlace, EncodedCorpus
from bertline.examples.store import Array, ExampleBlock
from bertline.foundation.seeds import seed_for
from bertline.tokenization.tokenizer import Layout

_COLUMNS, _TRIES = 5, 16


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


class BlockOfDocuments(NamedTuple):
    """The documents of a shard, and the number of the copy (out of `dupe_factor`) of their pairs."""

    documents: range
    copy: int


def blocks_of_documents(corpus: EncodedCorpus, num_copies: int) -> list[BlockOfDocuments]:
    """Return the shards as blocks, in order, all of one copy before the next."""
    ranges = [range(start, stop) for start, stop in pairwise(corpus.document_bounds)]
    return [BlockOfDocuments(documents, copy) for copy in range(num_copies) for documents in ranges]


def generate_pairs(
    block: BlockOfDocuments,
    out: Path,
    *,
    corpus: EncodedCorpus,
    split: Split,
    length: int,
    room: int,
    config: ExamplesConfig,
) -> dict[str, int]:
    """Choose the segments of the examples of a block, a pure function of the arguments; the task of a block.

    Writes `pairs.npy`, [examples, 5] int64: where A begins and ends among all tokens, the same of B (0 and 0 without
    B), and the label. A sequence has at most `length` tokens, `room` of them not special.

    Returns:
        Counts of examples.
    """
    kind = "segments" if config.random_next_prob is None else "pairs"
    rows = array("q")
    counts = dict.fromkeys(("examples", "tokens", config.wrong_next, "short", "truncated_tokens"), 0)
    for document in block.documents:
        rng = random.Random(seed_for(config.seed, kind, split, length, block.copy, document))
        make = document_segments if config.random_next_prob is None else document_pairs
        for pair in make(corpus, document, rng, room=room, config=config):
            b = pair.b or Span(0, 0)
            rows.extend((*pair.a, *b, pair.next_sentence_label))
            counts["tokens"] += pair.a.length + b.length + length - room
            counts[config.wrong_next] += pair.next_sentence_label
            counts["short"] += pair.is_short
            counts["truncated_tokens"] += pair.num_truncated
    counts["examples"] = len(rows) // _COLUMNS
    np.save(out / "pairs.npy", np.frombuffer(rows, dtype=np.int64).reshape(-1, _COLUMNS))
    return counts


def assemble(corpus: EncodedCorpus, pairs: Array, layout: Layout) -> ExampleBlock:
    """Concatenate `[CLS] A [SEP] B [SEP]` of all pairs [N, 5], or `[CLS] A [SEP]` without B, into one block."""
    # Without B, the span of B is empty and the layout has nothing between.
    a_starts, a_stops, b_starts, b_stops, labels = pairs.T
    a_lengths, b_lengths = a_stops - a_starts, b_stops - b_starts
    lengths = a_lengths + b_lengths + layout.num_special
    ends = np.cumsum(lengths)
    firsts = ends - lengths + len(layout.before)  # of A, and behind it
    seconds = firsts + a_lengths + len(layout.between)  # of B
    input_ids = np.empty(lengths.sum(), dtype=corpus.shard(0).tokens.dtype)
    for places, special in (
        (ends - lengths, layout.before),
        (firsts + a_lengths, layout.between),
        (ends - len(layout.after), layout.after),
    ):
        for offset, token in enumerate(special):
            input_ids[places + offset] = token
    corpus.copy_spans(a_starts, a_lengths, firsts, input_ids)
    corpus.copy_spans(b_starts, b_lengths, seconds, input_ids)
    return ExampleBlock(input_ids, lengths, seconds - (ends - lengths) if layout.between else lengths, labels)


def document_pairs(
    corpus: EncodedCorpus, document: int, rng: random.Random, *, room: int, config: ExamplesConfig
) -> Iterator[Pair]:
    """Generate the pairs of one document (Devlin et al. 2018, arXiv 1810.04805, section 3.1 and A.2)."""
    assert config.random_next_prob is not None  # else sequences have one segment
    starts = corpus.sentence_bounds(document)
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
    place, sentence = _random_sentence(corpus, document, rng)
    starts, start = place.starts, place.starts[sentence]
    stop = starts[bisect_left(starts, start + num_tokens, sentence + 1, place.last)]
    return Span(place.tokens_before + start, place.tokens_before + stop)


def _random_end(corpus: EncodedCorpus, document: int, rng: random.Random, num_tokens: int) -> Span:
    """Return the last `num_tokens` tokens of a sentence of another document, which has more if one is soon found."""
    longest = Span(0, 0)
    for _ in range(_TRIES):
        place, sentence = _random_sentence(corpus, document, rng)
        start, stop = place.starts[sentence : sentence + 2]
        drawn = Span(place.tokens_before + start, place.tokens_before + stop)
        longest = max(longest, drawn, key=lambda span: span.length)
        if longest.length > num_tokens:
            break
    return Span(max(longest.start, longest.stop - num_tokens), longest.stop)


def _random_sentence(corpus: EncodedCorpus, document: int, rng: random.Random) -> tuple[DocumentPlace, int]:
    """Return where the sentences of a random other document are, of the same language if there is one, and one of them.

    The copies of a document are no others.
    """
    first, stop = corpus.copies_of(document)
    copies = stop - first
    alike = corpus.in_language_of(first) if corpus.has_languages else ()
    if len(alike) > copies:
        number = _below(rng, len(alike) - copies)
        other = int(alike[number + copies * (number >= np.searchsorted(alike, first))])
    else:
        other = _below(rng, corpus.num_documents - copies)
        other += copies * (other >= first)
    place = corpus.place(other)
    return place, place.first + _below(rng, place.last - place.first)


def _truncated(a: Span, b: Span, excess: int, rng: random.Random) -> tuple[Span, Span]:
    """Remove `excess` tokens, each from the longer segment, from its front or back with equal probability."""
    # Equivalent to removing single tokens: from the longer segment until both are equal, then in turns, B first.
    from_longer = min(excess, abs(a.length - b.length))
    from_a = (excess - from_longer) // 2 + from_longer * (a.length > b.length)
    return _cut(a, from_a, rng), _cut(b, excess - from_a, rng)


def _cut(span: Span, num_tokens: int, rng: random.Random) -> Span:
    from_front = rng.getrandbits(num_tokens).bit_count() if num_tokens else 0
    return Span(span.start + from_front, span.stop - (num_tokens - from_front))


def _below(rng: random.Random, stop: int) -> int:
    """Return a random integer from 0 to `stop - 1`.

    Python guarantees identical results in all versions only for `random()`.
    """
    return int(rng.random() * stop)


def document_segments(
    corpus: EncodedCorpus, document: int, rng: random.Random, *, room: int, config: ExamplesConfig
) -> Iterator[Pair]:
    """Generate the segments of one document (RoBERTa, arXiv 1907.11692, section 4.2, DOC-SENTENCES)."""
    bounds = corpus.sentence_bounds(document)
    start = bounds[0]
    while start < bounds[-1]:
        is_short = rng.random() < config.short_sequence_prob
        target = 2 + _below(rng, room - 1) if is_short else room
        stop = bounds[bisect_right(bounds, start + target) - 1]
        if stop <= start:  # not even one sentence, or what is left of one, fits the target
            stop = min(bounds[bisect_right(bounds, start)], start + room)
        yield Pair(Span(start, stop), None, 0, is_short, 0)
        start = stop
