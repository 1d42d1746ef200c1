"""Generation of examples from spans of the encoded corpus, one block of documents at a time."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from bertline.corpus.document import Split
from bertline.examples.config import ExamplesConfig
from bertline.examples.encoding import EncodedCorpus
from bertline.examples.pairs import NUM_SPECIAL_TOKENS, Pair, document_pairs, document_segments
from bertline.examples.store import Array, ExampleBlock
from bertline.foundation.seeds import seed_for

_BLOCK_TOKENS = 500_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """Settings shared by all blocks of one split and one length."""

    corpus_folder: Path
    """Folder of an encoded corpus."""
    split: Split
    length: int
    config: ExamplesConfig
    cls_id: int
    sep_id: int


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


def generate_block(block: BlockOfDocuments, generation: Generation) -> tuple[ExampleBlock, Counter[str]]:
    """Generate the examples of a block, and their counts.

    This is a pure function of the corpus, the configuration and the block.
    """
    corpus, config, length = _opened(generation.corpus_folder), generation.config, generation.length
    kind = "segments" if config.random_next_prob is None else "pairs"
    pairs: list[Pair] = []
    for document in block.documents:
        rng = random.Random(seed_for(config.seed, kind, generation.split, length, block.copy, document))
        if config.random_next_prob is None:
            short_prob = config.short_sequence_prob
            pairs.extend(document_segments(corpus, document, rng, length=length, short_sequence_prob=short_prob))
        else:
            pairs.extend(document_pairs(corpus, document, rng, length=length, config=config))
    examples = assemble(corpus.tokens, pairs, cls_id=generation.cls_id, sep_id=generation.sep_id)
    counts = Counter(
        examples=len(pairs),
        tokens=len(examples.input_ids),
        random_next=sum(pair.next_sentence_label for pair in pairs),
        short=sum(pair.is_short for pair in pairs),
        truncated_tokens=sum(pair.num_truncated for pair in pairs),
    )
    return examples, counts


def assemble(tokens: Array, pairs: list[Pair], *, cls_id: int, sep_id: int) -> ExampleBlock:
    """Concatenate `[CLS] A [SEP] B [SEP]` of all pairs, or `[CLS] A [SEP]` without B, into one block.

    Example:
        >>> from bertline.examples.pairs import Span
        >>> pair = Pair(Span(0, 2), Span(2, 3), 0, False, 0)
        >>> assemble(np.array([10, 11, 12]), [pair], cls_id=2, sep_id=3).input_ids.tolist()
        [2, 10, 11, 3, 12, 3]
    """
    # Without B, the span of B is empty and its [SEP] is left out.
    bounds = np.array([(*pair.a, *(pair.b or (0, 0))) for pair in pairs], dtype=np.int64).reshape(len(pairs), 4)
    a_starts, a_stops, b_starts, b_stops = bounds.T
    a_lengths, b_lengths = a_stops - a_starts, b_stops - b_starts
    lengths = a_lengths + b_lengths + NUM_SPECIAL_TOKENS - np.array([pair.b is None for pair in pairs], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    input_ids = np.full(lengths.sum(), sep_id, dtype=tokens.dtype)
    input_ids[starts] = cls_id
    input_ids[_indices(starts + 1, a_lengths)] = tokens[_indices(a_starts, a_lengths)]
    input_ids[_indices(starts + a_lengths + 2, b_lengths)] = tokens[_indices(b_starts, b_lengths)]
    labels = np.array([pair.next_sentence_label for pair in pairs], dtype=np.int64)
    return ExampleBlock(input_ids, lengths, a_lengths + 2, labels)


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
