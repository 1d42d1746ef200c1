"""Every kind says how many of its rows lost tokens; what is read in windows loses none."""

from __future__ import annotations

import dataclasses

import pytest

import finished_tasks
import tiny
from bertline.kinds.registry import task_kind
from bertline.tokenization.tokenizer import Tokenizer

# So short that some rows of each kind are cut and some are not.
MAX_LENGTHS = {
    "classification": 24, "marked": 24, "multi_label": 14, "reranking": 17, "summarisation": 14,
    "sentence_labelling": 14, "windows": 12,
}  # fmt: skip
MAX_LENGTH = 10


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    tiny.write_vocabulary(folder, finished_tasks.TOKENS)
    return Tokenizer.load(folder)


WINDOWED = ("windows", "softmax", "cased", "crf", "tagging")
SIZES = {
    "question_answering": {"max_question_length": 4, "window_overlap": 2},
    "retrieval": {"query_max_length": 8},
    **{name: {"window_overlap": 3} for name in WINDOWED},
}


def made(name, **sizes):
    config, labels, rows, _ = finished_tasks.KINDS[name]()
    sizes = {"max_length": MAX_LENGTHS.get(name, MAX_LENGTH), **SIZES.get(name, {}), **sizes}
    kind = task_kind(dataclasses.replace(config, **sizes), labels)
    if name == "retrieval":
        kind.use_collection(finished_tasks.collection())
    return kind, rows


@pytest.mark.parametrize("name", sorted(finished_tasks.KINDS))
def test_rows_that_lose_tokens_are_counted(reader, name):
    kind, rows = made(name)
    found = kind.num_cut(kind.encode(rows, reader))
    if name in WINDOWED:
        assert found == 0
        return
    longest = {"question_answering": "max_question_length", "retrieval": "query_max_length"}.get(name, "max_length")
    whole, _ = made(name, **{"max_length": 300, longest: 200})

    def num_tokens(kind, row):
        encoded = kind.encode(rows.take([row]), reader)
        if name == "question_answering":
            return encoded.firsts.max()  # the context is behind the question
        return (encoded.queries if name == "retrieval" else encoded.sequences).lengths.sum()

    assert 0 < found == sum(num_tokens(kind, row) < num_tokens(whole, row) for row in range(len(rows))) < len(rows)


def test_documents_of_a_collection_are_counted_apart_from_queries(reader):
    kind, rows = made("retrieval")
    documents = finished_tasks.collection()
    expected = sum(len(reader.encode(f"word2 - {text}")) > MAX_LENGTH - 2 for text in documents.texts)
    assert kind.num_cut_documents(kind.encode(rows, reader)) == expected > 0
    other, rows = made("classification")
    assert other.num_cut_documents(other.encode(rows, reader)) is None
