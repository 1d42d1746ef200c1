"""Files of words and tags: every layout in use, and what is wrong with a file said by its line."""

from __future__ import annotations

import gzip

import pytest

import tiny
from bertline.foundation.bad_rows import BadRows
from bertline.foundation.errors import DataError
from bertline.kinds.token_classification import TokenClassification
from bertline.tasks.conll import read_conll


@pytest.fixture
def read(tmp_path):
    def make(content, bad_rows=None, **changes):
        path = tmp_path / "train.conll"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        bad_rows = bad_rows or BadRows("error")
        sentences = read_conll(path, tiny.conll_source(**changes), bad_rows)
        bad_rows.end()
        return sentences

    return make


def test_sentences_end_at_blank_lines_and_know_their_first_line(read):
    found = read("Ada\tB-PER\nLovelace\tI-PER\n\n\nruns\tO\n")
    assert [(s.id, s.words, s.tags) for s in found] == [
        ("train.conll:1", ("Ada", "Lovelace"), ("B-PER", "I-PER")),
        ("train.conll:5", ("runs",), ("O",)),
    ]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("at_end", ["", "\n", "\n\n\n"])
def test_line_ends_a_byte_order_mark_and_a_missing_last_line_end_change_nothing(read, ending, mark, at_end):
    lines = mark + "-DOCSTART-\tO\n\na\tO\n\nb\tO" + at_end
    assert [(s.words, s.document) for s in read(lines.replace("\n", ending))] == [
        (("a",), "train.conll:1"),
        (("b",), "train.conll:1"),
    ]


@pytest.mark.parametrize(
    ("separator", "line", "word_column", "tag_column"),
    [
        ("tab", "1\tAda\tNNP\tB-PER", 1, -1),
        ("tab", "B-PER\tAda", 1, 0),
        ("whitespace", "Ada NNP B-PER ", 0, -1),
        ("whitespace", "  Ada \t NNP   B-PER", -3, -1),
    ],
)
def test_any_column_from_either_end(read, separator, line, word_column, tag_column):
    found = read(line, separator=separator, word_column=word_column, tag_column=tag_column)
    assert found[0].words == ("Ada",)
    assert found[0].tags == ("B-PER",)


def test_document_marks_begin_documents_and_end_sentences(read):
    found = read("x\tO\n-DOCSTART-\t-X-\na\tO\n\nb\tO\n-DOCSTART-\t-X-\nc\tO\n")
    # What stands before the first mark is a document of its own.
    assert [s.document for s in found] == ["train.conll:1", "train.conll:2", "train.conll:2", "train.conll:6"]


def test_comments_of_conll_u_are_skipped_and_hashes_are_words(read):
    text = "# newdoc id = 7\n# text = #a\tb\n#a\tO\n#\tO\n# \tO\n\n# newdoc id = 8\n#b\tO\n"
    found = read(text)
    assert [(s.words, s.document) for s in found] == [(("#a", "#", "#"), "train.conll:1"), (("#b",), "train.conll:7")]


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        ("a\n", {}, r"train\.conll:1 has 1 column.*tag_column is 1: 'a'.*whitespace"),
        ("a\tO\n", {"tag_column": -3}, r"train\.conll:1 has 2 column.*tag_column is -3"),
        ("a\tO\n\tO\n", {}, r"train\.conll:2 has an empty word"),
        ("a\t\n", {}, r"train\.conll:1 has an empty tag"),
        (b"a\tO\n\nb\xe9\tO\n", {}, r"train\.conll:3: byte 0xe9.*Set encoding"),
        ("a\tO", {"encoding": "utf-99"}, "utf-99"),
        ("\n\t\n# only a comment\n", {}, "no sentences"),
        ("", {}, "no sentences"),
        (gzip.compress(b"a\tO\n" * 99)[:-9], {}, "the gzip data is torn"),
    ],
    ids=range(9),
)
def test_what_cannot_be_read_is_said_by_file_and_line(read, content, changes, message):
    with pytest.raises(DataError, match=message):
        read(content, **changes)


BAD_LINES = {
    "too_many_columns": ("New York B-LOC", r"train\.conll:4 has 3 column.*conll:1\) has 2: 'New York B-LOC'"),
    "too_few_columns": ("York", r"train\.conll:4 has 1 column.*conll:1\) has 2: 'York'"),
    "unknown_tag": ("York B.LOC", r"train\.conll:4: the tag is 'B.LOC'; expected O"),
    "unknown_type": ("York B-LCO", r"train\.conll:4: the tag is 'B-LCO'; source\.types has LOC, PER\."),
}


@pytest.mark.parametrize("reason", BAD_LINES)
def test_a_line_that_cannot_be_used_is_named_or_its_sentence_left_out_and_counted(read, reason):
    line, message = BAD_LINES[reason]
    content = f"Ada B-PER\n\nin O\n{line}\n\nruns O\n"
    changes = {"separator": "whitespace", "tag_column": -1, "types": ("LOC", "PER")}
    with pytest.raises(DataError, match=f"{message}.*on_bad_row=skip"):
        read(content, **changes)
    bad_rows = BadRows("skip")
    assert [s.words for s in read(content, bad_rows, **changes)] == [("Ada",), ("runs",)]
    assert bad_rows.dropped == {reason: 1}


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
        return TokenClassification.build("names", config)

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


def test_words_that_nobody_sees_are_left_out_and_counted_and_tags_stay_with_their_words(built, task):
    unseen = "\ufe0f\tB-PER\n\u200b\tI-PER\n"
    test = f"Ada\tB-PER\n{unseen}King\tI-PER\n\x07\tI-PER\nLee\tI-PER\n\u0301\tO\nruns\tO\n\n\ufffd\tO\n"
    found = built(task(FILES), train="c\tB-PER\n", dev="d\tO\n", test=test)
    assert found.splits["test"].words == [["Ada", "King", "Lee", "runs"]]
    assert found.splits["test"].tags == [["B-PER", "B-PER", "I-PER", "O"]]
    assert +found.dropped == {"invisible_word": 5, "sentence_without_words": 1}
