"""Rows without labels: where their texts are read, and which of them are left out."""

from __future__ import annotations

import json
from collections import Counter

import pytest

import finished_tasks
from bertline.foundation.errors import ConfigError, DataError
from bertline.kinds.build import build_task, unlabelled_rows
from bertline.tasks.stored_rows import BuiltTask, TextRows, read_rows, read_task_manifest
from bertline.tokenization.tokenizer import Tokenizer

LINES = {
    "classification": {"text": "word1 word2", "text_pair": "word3"},
    "linear": {"a": "word1 word2", "b": "word3"},
    "softmax": {"words": ["word1", "word2"]},
    "question_answering": {"question": "word1", "context": "word2 word3"},
    "retrieval": {"query": "word1 word2"},
}


@pytest.fixture
def task_of():
    """A built task of a kind with the rows of its finished model in every split."""

    def make(name):
        config, labels, rows, _ = finished_tasks.KINDS[name]()
        splits = {"train": rows, "dev": rows.first(2), "test": rows.first(1)}
        collection = finished_tasks.collection() if name == "retrieval" else None
        return config, BuiltTask(splits=splits, labels=tuple(labels), dropped=Counter(), collection=collection)

    return make


@pytest.mark.parametrize("name", LINES)
def test_a_kind_reads_the_texts_and_can_train_on_them(name, task_of, tmp_path):
    config, task = task_of(name)
    (tmp_path / "rows.jsonl").write_text("\n".join([json.dumps(LINES[name])] * 3) + "\n")
    rows = unlabelled_rows(tmp_path / "rows.jsonl", config.source, task)
    assert len(rows) == 3
    assert rows.ids[0] == "rows.jsonl:1"
    texts = [value if isinstance(value, str) else " ".join(value) for value in LINES[name].values()]
    assert all(text in rows.texts_read()[0] for text in texts)
    finished = finished_tasks.finish(name, tmp_path)
    encoded = finished.kind.encode(rows, Tokenizer.load(finished.folder))
    for batch in finished.kind.training_batches(encoded, batch_size=2, seed=0):
        assert len(finished.kind.training_outputs(finished.model, batch)) > 0


def test_a_kind_without_such_rows_says_so(task_of, tmp_path):
    config, task = task_of("summarisation")
    with pytest.raises(ConfigError, match="no rows without labels"):
        unlabelled_rows(tmp_path / "rows.jsonl", config.source, task)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('text\nfine\n""\n', r"rows\.csv:3: a text is empty"),
        ("other\nfine\n", r"rows\.csv:2: there is no column 'text'"),
    ],
)
def test_a_row_without_a_text_is_named(line, message, tmp_path, task, table_source, python_docs):
    (tmp_path / "rows.csv").write_text(line)
    (tmp_path / "all.csv").write_text("text,label\n" + "".join(f"text {n},{n % 2}\n" for n in range(60)))
    asked = task(table_source(tmp_path / "all.csv"), teacher="somewhere", unlabelled=str(tmp_path / "rows.csv"))
    with pytest.raises(DataError, match=message):
        build_task("reviews", asked, python_docs, tmp_path / "out")


def test_rows_that_are_in_dev_or_test_are_left_out_and_counted(tmp_path, task, table_source, python_docs):
    (tmp_path / "all.csv").write_text("text,label\n" + "".join(f"text {n},{n % 2}\n" for n in range(60)))
    (tmp_path / "rows.csv").write_text("text\n" + "".join(f"TEXT  {n}\n" for n in range(80)))
    asked = task(table_source(tmp_path / "all.csv"), teacher="somewhere", unlabelled=str(tmp_path / "rows.csv"))
    build_task("reviews", asked, python_docs, tmp_path / "out")
    manifest = read_task_manifest(tmp_path / "out")
    held_out = manifest["counts"]["dev"] + manifest["counts"]["test"]
    rows = read_rows(tmp_path / "out", "unlabelled", TextRows)
    assert manifest["dropped"]["unlabelled_row_also_in_dev_or_test"] == held_out
    assert manifest["counts"]["unlabelled"] == len(rows) == 80 - held_out
