"""Every kind says how many of its rows lost tokens; what is read in windows loses none."""

from __future__ import annotations

import dataclasses

import pytest

import finished_tasks
import tiny
from bertline.finetuning.encoding import encode_windows
from bertline.kinds.registry import task_kind
from bertline.tokenization.tokenizer import Tokenizer

# So short that some rows of each kind are cut and some are not.
MAX_LENGTHS = {
    "classification": 24,
    "marked": 24,
    "multi_label": 14,
    "reranking": 17,
    "summarisation": 14,
    "sentence_labelling": 14,
    "windows": 12,
}
MAX_LENGTH = 10


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    tiny.write_vocabulary(folder, finished_tasks.TOKENS)
    return Tokenizer.load(folder)


@pytest.fixture
def counted(reader):
    """Rows of each kind with more tokens than there is room for, counted one by one."""

    def tokens(text):
        return len(reader.encode(text))

    def of_texts(rows, most):
        pairs = getattr(rows, "text_pairs", None) or [None] * len(rows)
        return sum(
            tokens(text) > most - 2 if pair is None else tokens(text) + tokens(pair) > most - 3
            for text, pair in zip(rows.texts, pairs, strict=True)
        )

    def of_either_text(rows, most):
        return sum(max(map(tokens, pair)) > most - 2 for pair in zip(rows.texts, rows.text_pairs, strict=True))

    def of_any_candidate(rows, most):
        return sum(
            any(tokens(query) + tokens(text) > most - 3 for text in candidates)
            for query, candidates in zip(rows.queries, rows.candidates, strict=True)
        )

    return {
        **dict.fromkeys(("classification", "marked", "multi_label", "linear"), of_texts),
        "cosine": of_either_text,
        "question_answering": lambda rows, _: sum(tokens(question) > 4 for question in rows.questions),
        "reranking": of_any_candidate,
        "retrieval": lambda rows, _: sum(tokens(f"word1 - {query}") > 6 for query in rows.queries),
        **dict.fromkeys(
            ("summarisation", "sentence_labelling"),
            lambda rows, most: sum(
                any(tokens(sentence) > most - 2 for sentence in sentences) for sentences in rows.sentences
            ),
        ),
    }


def made(name):
    config, labels, rows, _ = finished_tasks.KINDS[name]()
    changes = {
        "question_answering": {"max_question_length": 4, "window_overlap": 2},
        "retrieval": {"query_max_length": 8},
        **{key: {"window_overlap": 3} for key in ("softmax", "cased", "crf", "windows", "tagging")},
    }
    max_length = MAX_LENGTHS.get(name, MAX_LENGTH)
    kind = task_kind(dataclasses.replace(config, max_length=max_length, **changes.get(name, {})), labels)
    if name == "retrieval":
        kind.use_collection(finished_tasks.collection())
    return kind, rows


@pytest.mark.parametrize("name", sorted(finished_tasks.KINDS))
def test_rows_that_lose_tokens_are_counted(reader, counted, name):
    kind, rows = made(name)
    found = kind.num_cut(kind.encode(rows, reader))
    if name in ("windows", "softmax", "cased", "crf", "tagging"):
        assert found == 0
    else:
        assert 0 < found == counted[name](rows, kind.config.max_length) < len(rows)


def test_documents_of_a_collection_are_counted_apart_from_queries(reader):
    kind, rows = made("retrieval")
    documents = finished_tasks.collection()
    expected = sum(len(reader.encode(f"word2 - {text}")) > MAX_LENGTH - 2 for text in documents.texts)
    assert kind.num_cut_documents(kind.encode(rows, reader)) == expected > 0
    other, rows = made("classification")
    assert other.num_cut_documents(other.encode(rows, reader)) is None


@pytest.mark.parametrize(("first", "second", "cut"), [(30, 8, False), (8, 30, False), (30, 9, True), (9, 30, True)])
def test_in_windows_only_the_shorter_of_two_long_texts_loses_tokens(reader, first, second, cut):
    texts = [finished_tasks.text(*range(first)), "word1"], [finished_tasks.text(*range(second)), "word2"]
    assert encode_windows(*texts, reader, max_length=19, overlap=2).cut.tolist() == [cut, False]
