"""Documents and summaries from JSONL."""

from __future__ import annotations

import json

import pytest

import tiny
from bertline.foundation.errors import DataError
from bertline.kinds.summarisation import SummarisationTaskConfig
from bertline.tasks.build import build_task
from bertline.tasks.source_config import SummariesSourceConfig
from bertline.tasks.stored_rows import SummaryRows, read_rows, read_task_manifest


def row(number, **changes):
    return {"document": f"It was day {number}. The cat sat.\nNobody came.", "summary": "The cat sat.", **changes}


@pytest.fixture
def build(tmp_path, python_docs):
    def make(rows, *, on_bad_row="error", files=None, **changes):
        path = tmp_path / "all.jsonl"
        lines = [each if isinstance(each, str) else json.dumps(each) for each in rows]
        path.write_text("\n".join(lines), encoding="utf-8")
        source = SummariesSourceConfig(
            kind="summaries", path=str(tmp_path if files else path), document_column="document",
            summary_column="summary", on_bad_row=on_bad_row,
            **(files or {"train_file": None, "dev_file": None, "test_file": None}),
        )  # fmt: skip
        fields = {
            "kind": "summarisation", "source": source, "num_sentences": 2, "metric": "rouge1",
            **tiny.task_fields(max_length=64, dev_fraction=0.2, test_fraction=0.2, split_seed=0),
        }  # fmt: skip
        build_task("news", SummarisationTaskConfig(**{**fields, **changes}), python_docs, tmp_path / "out")
        return tmp_path / "out"

    return make


def all_rows(out):
    return [read_rows(out, split, SummaryRows) for split in ("train", "dev", "test")]


def test_a_text_is_split_into_sentences_and_those_of_the_summary_are_chosen(build):
    splits = all_rows(build([row(number) for number in range(30)]))
    assert sum(map(len, splits)) == 30 and all(len(rows) for rows in splits)
    for rows in splits:
        for sentences, chosen in zip(rows.sentences, rows.chosen, strict=True):
            assert sentences[0].startswith("It was day") and sentences[1:] == ["The cat sat.", "Nobody came."]
            assert chosen == [0, 1, 0]


def test_equal_documents_are_never_split_and_repeats_of_scored_ones_are_dropped(build, tmp_path):
    rows = [row(number // 2) for number in range(60)]
    train, dev, test = all_rows(build(rows))
    documents = [{" ".join(sentences) for sentences in split.sentences} for split in (train, dev, test)]
    assert not documents[0] & documents[1] and not documents[0] & documents[2] and not documents[1] & documents[2]
    (tmp_path / "test.jsonl").write_text(json.dumps(row(3)))
    out = build(rows, files={"train_file": "all.jsonl", "dev_file": None, "test_file": "test.jsonl"})
    assert sum(read_task_manifest(out)["dropped"].values()) == 2


BAD = {
    "missing_column": ({"text": "x", "summary": "y"}, r"no column 'document'; the columns are 'text', 'summary'"),
    "empty_document": (row(0, document=" \n"), "the document in 'document' is empty"),
    "empty_list": (row(0, document=["", " "]), "the document in 'document' is empty"),
    "empty_summary": (row(0, summary=""), "the summary in 'summary' is empty"),
    "no_words": (row(0, summary="東京!"), "none of the letters a to z"),
    "number": (row(0, document=7), "neither a text nor a list of sentences"),
    "mixed_list": (row(0, summary=["a", 1]), "neither a text nor a list of sentences"),
    "torn": ('{"document": ', "is not JSON"),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_row_is_named_with_file_and_line_or_left_out_and_counted(build, name):
    bad, message = BAD[name]
    rows = [row(0), bad, *(row(number) for number in range(1, 12))]
    with pytest.raises(DataError, match=rf"all\.jsonl:2.*{message}"):
        build(rows)
    out = build(rows, on_bad_row="skip")
    assert sum(map(len, all_rows(out))) == 12
    assert sum(read_task_manifest(out)["dropped"].values()) == 1
