"""Overlap with the corpus, checked against the plain definition on sets of tuples."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.corpus.quality.contamination import MIN_WORDS
from bertline.evaluation import overlap
from bertline.evaluation.overlap import Overlap, measure_overlap
from corpora import write_corpus

SENTENCE = "the quick brown fox jumps over the lazy dog beside a slow green river today"


def corpus_of(folder: Path, documents: Sequence[Sequence[str]], *, per_shard: int = 2) -> Path:
    return write_corpus(folder, documents, [], shard_documents=per_shard)


def overlap_of(folder: Path, documents: Sequence[Sequence[str]], texts: list[str]) -> Overlap:
    return measure_overlap({"test": texts}, corpus_of(folder, documents), flag=0.1, num_workers=1)["test"]


@settings(max_examples=60)
@given(
    rows=st.lists(st.lists(st.sampled_from("abcd"), max_size=20), max_size=8),
    documents=st.lists(st.lists(st.lists(st.sampled_from("abcde"), max_size=12), max_size=3), min_size=1, max_size=6),
    bounds=st.tuples(st.integers(1, 6), st.integers(0, 4)),
)
def test_shares_are_those_of_sets_of_word_tuples(
    rows: list[list[str]], documents: list[list[list[str]]], bounds: tuple[int, int]
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(overlap, "NGRAM_BOUNDS", (bounds[0], sum(bounds)))
        corpus = corpus_of(Path(folder), [[" ".join(sentence) for sentence in one] for one in documents])
        measured = measure_overlap({"t": [" ".join(row) for row in rows]}, corpus, flag=0.5, num_workers=1)["t"]
    streams = [[word for sentence in document for word in sentence] for document in documents]
    long_enough = [row for row in rows if len(row) >= MIN_WORDS]
    num_found, hits, total = 0, 0, 0
    for row in long_enough:
        n = min(measured.ngram, len(row))
        seen = {tuple(stream[i : i + n]) for stream in streams for i in range(len(stream) - n + 1)}
        grams = [tuple(row[i : i + n]) for i in range(len(row) - n + 1)]
        found = sum(gram in seen for gram in grams)
        num_found, hits, total = num_found + bool(found), hits + found, total + len(grams)
    assert measured.rows_with_overlap == num_found
    assert measured.share_of_ngrams == hits / max(total, 1)
    assert (measured.rows, measured.rows_too_short) == (len(long_enough), len(rows) - len(long_enough))


def test_case_punctuation_and_sentence_boundaries_do_not_hide_a_copy(tmp_path: Path) -> None:
    halves = [["THE QUICK, brown fox -- jumps over!", "The lazy dog; beside a slow green river (today)."]]
    found = overlap_of(tmp_path, halves, [SENTENCE])
    assert (found.share_of_rows, found.share_of_ngrams, found.flagged) == (1.0, 1.0, True)


def test_n_follows_the_rows_between_its_bounds(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [["nothing"]])
    for length, n in ((4, 8), (10, 10), (40, 13)):
        texts = [" ".join(["word"] * length)] * 30
        assert measure_overlap({"t": texts}, corpus, flag=0.1, num_workers=1)["t"].ngram == n


def test_splits_measured_together_are_as_measured_alone_and_with_processes(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [[SENTENCE, "and so on"], ["one two three four five six seven eight nine ten"]] * 3)
    texts = {
        "long": [SENTENCE + " and more words that are not there"] * 2,
        "short": ["two three four five six seven eight nine", "not there at all in any of it"],
    }
    together = measure_overlap(texts, corpus, flag=0.1, num_workers=1)
    assert together == measure_overlap(texts, corpus, flag=0.1, num_workers=2)
    for name, rows in texts.items():
        assert together[name] == measure_overlap({name: rows}, corpus, flag=0.1, num_workers=1)[name]
