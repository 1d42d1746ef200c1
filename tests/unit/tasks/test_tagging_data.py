"""Tagged rows of a task: splits that share no document, labels, and WNUT 2017 as it is published."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny
from bertline.kinds.token_classification.data import built_task
from bertline.tasks.build import build_task
from bertline.tasks.stored_rows import TaggedRows, read_rows, read_task_manifest

WNUT = Path(__file__).parents[4] / "shared" / "data" / "tasks" / "wnut17"


@pytest.fixture
def task(tmp_path):
    def make(source=None, **changes):
        files = tiny.conll_source(**{"path": str(tmp_path), "train_file": "train.conll", **(source or {})})
        fields = {"max_length": 16, "dev_fraction": 0.2, "test_fraction": 0.2, "split_seed": 0}
        return tiny.tagging_task(source=files, **{**fields, **changes})

    return make


@pytest.fixture
def built(tmp_path):
    """What a task comes to whose files have these contents."""

    def make(config, **contents):
        for name, content in contents.items():
            (tmp_path / f"{name}.conll").write_text(content)
        return built_task("names", config)

    return make


def documents(number, sentences=5):
    return "".join(
        "-DOCSTART-\tO\n\n" + "".join(f"doc{doc}\tB-PER\nsays\tO\nn{n}\tO\n\n" for n in range(sentences))
        for doc in range(number)
    )


def test_missing_splits_are_cut_by_document(built, task):
    splits = built(task(), train=documents(60)).splits
    of_splits = {split: set(rows.documents) for split, rows in splits.items()}
    assert sum(len(found) for found in of_splits.values()) == len(set.union(*of_splits.values())) == 60
    assert sum(len(rows) for rows in splits.values()) == 300
    assert all(4 <= len(of_splits[split]) <= 22 for split in ("dev", "test"))
    # A document added later moves none of the others.
    more = built(task(), train=documents(70)).splits
    assert all(found <= set(more[split].documents) for split, found in of_splits.items())


def test_without_document_marks_equal_sentences_stay_together(built, task):
    splits = built(task(), train="".join(f"w{n % 40}\tB-PER\nruns\tO\n\n" for n in range(120))).splits
    words = {split: {tuple(found) for found in rows.words} for split, rows in splits.items()}
    assert sum(len(found) for found in words.values()) == len(set.union(*words.values())) == 40
    assert all(words.values())


FILES = {"dev_file": "dev.conll", "test_file": "test.conll"}


def test_sentences_of_a_split_closer_to_the_test_are_left_out_and_counted(built, task):
    test, dev = "Ada\tB-PER\nruns\tO\n", "ADA\tO\nRuns\tO\n\nBob\tB-PER\n"
    train = "ada\tB-PER\nruns\tO\n\nBob\tO\n\nBob\tB-PER\nruns\tO\n\nBob\tB-PER\nruns\tO\n"
    found = built(task(FILES), train=train, dev=dev, test=test)
    assert {split: sorted(rows.ids) for split, rows in found.splits.items()} == {
        "train": ["train.conll:6", "train.conll:9"], "dev": ["dev.conll:4"], "test": ["test.conll:1"]
    }  # fmt: skip
    assert found.dropped["train_sentence_also_in_dev_or_test"] == 2
    assert found.dropped["dev_sentence_also_in_test"] == 1


def test_bad_sentences_are_left_out_and_counted_with_what_was_repaired(built, task):
    rows = "a\tB-PER\n\nb\tO\tO\n\nc\tI-PER\n"
    source = {**FILES, "on_bad_row": "skip", "on_broken_tags": "repair"}
    found = built(task(source), train=rows, dev="d\tO\n", test="e\tO\n\nf\tx\n")
    assert sorted(found.splits["train"].ids) == ["train.conll:1", "train.conll:5"]
    assert +found.dropped == {"too_many_columns": 1, "unknown_tag": 1, "broken_tag_repaired": 1}


def test_words_that_nobody_sees_are_left_out_and_counted_and_tags_stay_with_their_words(built, task):
    unseen = "\ufe0f\tB-PER\n\u200b\tI-PER\n"
    test = f"Ada\tB-PER\n{unseen}King\tI-PER\n\x07\tI-PER\nLee\tI-PER\n\u0301\tO\nruns\tO\n\n\ufffd\tO\n"
    found = built(task(FILES), train="c\tB-PER\n", dev="d\tO\n", test=test)
    assert found.splits["test"].words == [["Ada", "King", "Lee", "runs"]]
    assert found.splits["test"].tags == [["B-PER", "B-PER", "I-PER", "O"]]
    assert +found.dropped == {"invisible_word": 5, "sentence_without_words": 1}


def test_train_is_in_a_random_order_of_the_seed_and_a_smaller_one_is_its_beginning(built, task):
    def order(**changes):
        return built(task(**changes), train=documents(20)).splits["train"].ids

    whole = order()
    assert whole != sorted(whole, key=lambda name: int(name.partition(":")[2]))
    assert order() == whole
    assert order(num_train_rows=10) == whole[:10]
    assert order(num_train_rows=10, label_efficiency_rows=(5, 20)) == whole[:20]
    assert set(order(split_seed=1)) != set(whole)


def test_the_task_is_stored_and_read_as_it_was(tmp_path, built, task, python_docs):
    config = task()
    splits = built(config, train=documents(40)).splits
    build_task("names", config, python_docs, tmp_path / "out")
    for split, rows in splits.items():
        assert read_rows(tmp_path / "out", split, TaggedRows) == rows
    manifest = read_task_manifest(tmp_path / "out")
    assert manifest["labels"] == ["O", "B-PER", "I-PER"]
    assert manifest["task_kind"] == "token_classification"
