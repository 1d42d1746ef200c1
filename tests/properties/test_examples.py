"""Whatever the documents are, sentence pairs keep their promises."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.examples.encoding import EncodedCorpus
from bertline.examples.generation import assemble, document_pairs
from bertline.tokenization.tokenizer import Layout
from encoded_corpora import encoded_corpus
from staged_runs import EXAMPLES

CLS, SEP = 10**6, 10**6 + 1

sentence_lengths = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=12), min_size=2, max_size=8)


def corpus_of(lengths: list[list[int]], num_first: int) -> EncodedCorpus | None:
    """A corpus of two shards in which every token is its own position; None unless two documents have text."""
    token = iter(range(10**6))
    documents = [[[next(token) for _ in range(n)] for n in document] for document in lengths]
    corpus = encoded_corpus(documents[:num_first], documents[num_first:])
    return corpus if corpus.num_documents >= 2 else None


@settings(max_examples=300)
@given(sentence_lengths, st.integers(8, 64), st.floats(0, 1), st.floats(0, 1), st.booleans(), st.integers(0, 2**32))
def test_pairs(
    lengths: list[list[int]], length: int, wrong_prob: float, short_prob: float, swaps: bool, seed: int
) -> None:
    corpus = corpus_of(lengths, seed % 9)
    if corpus is None:
        return
    wrong = {"random_next_prob": 0.0, "swapped_prob": wrong_prob} if swaps else {"random_next_prob": wrong_prob}
    config = replace(EXAMPLES, lengths=(length,), short_sequence_prob=short_prob, **wrong)
    bounds = [corpus.sentence_bounds(document)[0] for document in range(corpus.num_documents)]
    bounds.append(corpus.token_bounds[-1])
    for document in range(corpus.num_documents):
        pairs = list(document_pairs(corpus, document, random.Random(seed), room=length - 3, config=config))
        again = list(document_pairs(corpus, document, random.Random(seed), room=length - 3, config=config))
        assert pairs == again
        start, stop = bounds[document], bounds[document + 1]
        one_sentence = len(corpus.sentence_bounds(document)) == 2
        assert pairs or stop - start < 2 or (one_sentence and wrong.get("swapped_prob"))
        for pair in pairs:
            assert pair.a.length >= 1
            assert pair.b.length >= 1
            assert pair.a.length + pair.b.length + 3 <= length
            assert start <= pair.a.start < pair.a.stop <= stop
            origin = int(np.searchsorted(bounds, pair.b.start, side="right")) - 1
            assert pair.b.stop <= bounds[origin + 1]
            assert (origin != document) == (pair.next_sentence_label == 1 and not swaps)
            if origin == document:
                assert (pair.a.stop <= pair.b.start) == (pair.next_sentence_label == 0)
        # Every token is its own position, so a segment is in order exactly if it counts up by one.
        rows = np.array([(*pair.a, *pair.b, 0) for pair in pairs], dtype=np.int64).reshape(-1, 5)
        block = assemble(corpus, rows, Layout((CLS,), (SEP,), (SEP,), 1))
        first = 0
        for pair, size in zip(pairs, block.lengths.tolist(), strict=True):
            expected = [CLS, *range(*pair.a), SEP, *range(*pair.b), SEP]
            assert block.input_ids[first : first + size].tolist() == expected
            first += size
