"""Tables of several labels, of numbers and of extra tests; bad rows as errors and as counts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bertline.foundation.errors import DataError
from bertline.kinds.build import build_task
from bertline.kinds.registry import kind_named
from bertline.tasks.stored_rows import MultiLabelRows, NumberRows, TextRows, read_rows, read_task_manifest
from corpora import NO_PACKAGES

TOPICS = [["sport"], ["politics", "sport"], [], ["art", "politics"]]


def write_tsv(path, rows, header=("text", "label")):
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in [header, *rows]))


def stored(out, config, split):
    return kind_named(config.kind).stored_rows(out, split)


def labelled(num_rows, first=0):
    return [(f"text {number}", "ab"[number % 2]) for number in range(first, first + num_rows)]


@pytest.fixture
def built(tmp_path, python_docs):
    def make(config):
        build_task("mine", config, python_docs, tmp_path / "out")
        return tmp_path / "out"

    return make


def labels_of(out, split):
    names, rows = read_task_manifest(out)["labels"], read_rows(out, split, MultiLabelRows)
    return {
        text: [name for name, has in zip(names, row, strict=True) if has]
        for text, row in zip(rows.texts, rows.labels, strict=True)
    }


class TestSeveralLabels:
    def test_each_row_keeps_its_labels(self, tmp_path, task, table_source, built):
        path = tmp_path / "rows.tsv"
        write_tsv(path, [(f"text {number}", "|".join(TOPICS[number % 4])) for number in range(80)])
        out = built(task(table_source(path, label_separator="|"), multi_label=True, metric="micro_f1"))
        assert read_task_manifest(out)["labels"] == ["art", "politics", "sport"]
        for split in ("train", "dev", "test"):
            for text, labels in labels_of(out, split).items():
                assert labels == TOPICS[int(text.split()[1]) % 4]

    @pytest.mark.parametrize(
        ("cell", "separator", "says"),
        [
            (lambda n: TOPICS[n % 4][:1], None, "no train row has two labels"),
            (lambda n: TOPICS[n % 4], None, ""),
            (lambda n: "a;b"[: 1 + 2 * (n % 2)], None, "source.label_separator"),
            (lambda n: "a;b"[: 1 + 2 * (n % 2)], ";", ""),
            (lambda n: ["nan", "b"][: 1 + n % 2], None, "a label is 'nan'"),
        ],
    )
    def test_labels_that_are_hardly_meant_are_warned_of(
        self, tmp_path, task, table_source, built, capsys, cell, separator, says
    ):
        rows = [{"text": f"text {number}", "label": cell(number)} for number in range(80)]
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        source = table_source(tmp_path / "rows.jsonl", label_separator=separator)
        built(task(source, multi_label=True, metric="micro_f1"))
        warnings = [
            line
            for line in capsys.readouterr().err.splitlines()
            if line.startswith("warning") and "tasks.mine:" in line
        ]
        assert [says in warning for warning in warnings] == [True] * bool(says)


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize(
    ("train", "says"),
    [
        (labelled(30), r"train split has no rows\. .*30 train_row_also_in_dev_or_test"),
        ([], r"train split has no rows\. Give its file"),
    ],
)
def test_a_train_split_without_rows_is_the_cause_that_is_named(
    tmp_path, task, table_source, built, train, says, several
):
    write_tsv(tmp_path / "train.tsv", train)
    write_tsv(tmp_path / "test.tsv", labelled(30))
    source = table_source(tmp_path, train_file="train.tsv", dev_file="test.tsv", test_file="test.tsv")
    with pytest.raises(DataError, match=says):
        built(task(source, multi_label=True, metric="micro_f1") if several else task(source))


def test_a_column_may_be_named_by_a_number(tmp_path, task, table_source, built):
    write_tsv(tmp_path / "rows.tsv", labelled(60), header=("0", "1"))
    out = built(task(table_source(tmp_path / "rows.tsv", text_column=0, label_column=1)))
    assert read_task_manifest(out)["labels"] == ["a", "b"]


class TestNumbers:
    def test_numbers_and_pairs_are_stored(self, tmp_path, number_task, table_source, built):
        write_tsv(
            tmp_path / "rows.tsv", [(f"a{n}", f"b{n}", n % 11 / 2) for n in range(80)], ("left", "right", "score")
        )
        source = table_source(tmp_path / "rows.tsv", text_column="left", text_pair_column="right", label_column="score")
        out = built(number_task(source))
        rows = read_rows(out, "train", NumberRows)
        assert rows.numbers.dtype == np.float64
        assert rows.text_pairs == [f"b{text[1:]}" for text in rows.texts]
        assert rows.numbers.tolist() == [int(text[1:]) % 11 / 2 for text in rows.texts]
        manifest = read_task_manifest(out)
        assert manifest["labels"] == [] and manifest["pair"] is True and manifest["task_kind"] == "regression"


@pytest.mark.parametrize(
    ("bad", "reason", "says"),
    [
        (("", "a"), "empty_text", "'text' is empty"),
        (("text", ""), "empty_label", "label is empty"),
        (("text", "c"), "unknown_label", "'c'"),
        (("text",), "wrong_width", "1 fields"),
        (("text", "a", "b"), "wrong_width", "3 fields"),
        (("text", "high"), "not_a_number", "'high' is no number"),
        (("text", "7"), "number_outside_the_scale", "scale from 0 to 5"),
    ],
)
def test_a_bad_row_is_an_error_with_its_place_or_is_counted(
    tmp_path, task, number_task, table_source, built, bad, reason, says
):
    def config(**source):
        made = table_source(tmp_path / "rows.tsv", **source)
        return number_task(made) if "number" in reason else task(made, labels=("a", "b"))

    write_tsv(
        tmp_path / "rows.tsv", [bad, *((f"text {n}", n % 6 if "number" in reason else "ab"[n % 2]) for n in range(60))]
    )
    with pytest.raises(DataError) as error:
        built(config())
    assert "rows.tsv:2" in str(error.value) and says in str(error.value)
    assert "on_bad_row=skip" in str(error.value)
    manifest = read_task_manifest(built(config(on_bad_row="skip")))
    assert manifest["dropped"] == {reason: 1}
    assert sum(manifest["counts"].values()) == 60


@pytest.mark.parametrize("text", ["NaN", "[1]", '["one"]', '{"a": "b"}', "true", "false", '"\\ud800 x"'])
def test_a_text_that_is_none_is_an_error_with_its_line_or_is_counted(tmp_path, task, table_source, built, text):
    rows = [json.dumps({"text": text, "label": label}) for text, label in labelled(60)]
    (tmp_path / "rows.jsonl").write_text("\n".join([rows[0], f'{{"text": {text}, "label": "a"}}', *rows[1:]]))
    with pytest.raises(DataError, match=r"rows\.jsonl:2: .*on_bad_row=skip"):
        built(task(table_source(tmp_path / "rows.jsonl")))
    manifest = read_task_manifest(built(task(table_source(tmp_path / "rows.jsonl", on_bad_row="skip"))))
    assert manifest["dropped"] == {"half_character" if "ud800" in text else "wrong_type": 1}
    assert sum(manifest["counts"].values()) == 60


class TestSplits:
    @pytest.fixture
    def folder(self, tmp_path):
        folder = tmp_path / "folder"
        folder.mkdir()
        write_tsv(folder / "train.tsv", labelled(200))
        write_tsv(folder / "dev.tsv", labelled(30, first=190))
        write_tsv(folder / "other.tsv", [*labelled(20, first=1000), *labelled(10)])
        return folder

    def test_an_extra_test_is_a_split_of_its_own_and_no_row_of_it_is_in_train_or_dev(
        self, task, table_source, built, folder
    ):
        source = table_source(folder, train_file="train.tsv", test_file="dev.tsv", extra_tests={"other": "other.tsv"})
        out = built(task(source))
        manifest = read_task_manifest(out)
        other = read_rows(out, "test_other", TextRows)
        assert len(other) == manifest["counts"]["test_other"] == 30
        for split in ("train", "dev", "test"):
            texts = set(read_rows(out, split, TextRows).texts)
            assert not texts & set(other.texts)
        dropped = manifest["dropped"]
        assert dropped.get("train_row_also_in_test_other", 0) + dropped.get("dev_row_also_in_test_other", 0) == 10


class TestClusters:
    ROWS = tuple((f"text {n}", "ab"[n % 2], f"author {n // 5}") for n in range(200))

    @pytest.mark.parametrize("kind", ["classification", "several labels", "regression"])
    def test_a_column_of_clusters_keeps_its_rows_in_one_split(self, tmp_path, task, number_task, table_source, kind):
        rows = [(text, n % 5 if kind == "regression" else label, author)
                for n, (text, label, author) in enumerate(self.ROWS)]  # fmt: skip
        write_tsv(tmp_path / "rows.tsv", rows, header=("text", "label", "author"))
        source = table_source(tmp_path / "rows.tsv", group_column="author")
        config = number_task(source) if kind == "regression" else task(source, multi_label=kind == "several labels")
        build_task("mine", config, NO_PACKAGES, tmp_path / "out")
        splits = [stored(tmp_path / "out", config, split) for split in ("train", "dev", "test")]
        assert sum(map(len, splits)) == 200
        found = [set(rows.sources()) for rows in splits]
        assert set.union(*found) == {row[2] for row in self.ROWS} and sum(map(len, found)) == 40
        for rows in splits:
            assert rows.sources() == [f"author {int(text.split()[1]) // 5}" for text in rows.texts]
            assert rows.first(3).sources() == rows.sources()[:3]

    def files(self, tmp_path, table_source, *, last="author 9", **changes):
        """Train of the authors 0 to 7, dev of 8, test of 9, but for the last row of test."""
        header = ("text", "label", "author")
        write_tsv(tmp_path / "train.tsv", self.ROWS[:40], header=header)
        write_tsv(tmp_path / "dev.tsv", self.ROWS[40:45], header=header)
        write_tsv(tmp_path / "test.tsv", [*self.ROWS[45:49], (*self.ROWS[49][:2], last)], header=header)
        names = {f"{split}_file": f"{split}.tsv" for split in ("train", "dev", "test")}
        return table_source(tmp_path, group_column="author", **{**names, **changes})

    def test_groups_of_each_split_are_in_the_manifest(self, tmp_path, task, table_source, capsys):
        build_task("mine", task(self.files(tmp_path, table_source)), NO_PACKAGES, tmp_path / "out")
        assert read_task_manifest(tmp_path / "out")["groups"] == {"train": 8, "dev": 1, "test": 1}
        assert "groups: 8 train, 1 dev, 1 test" in capsys.readouterr().out

    @pytest.mark.parametrize("split", ["test", "extra"])
    def test_groups_that_overlap_between_given_splits_are_refused(self, tmp_path, task, table_source, split):
        extra = {"test_file": None, "extra_tests": {"other": "test.tsv"}} if split == "extra" else {}
        source = self.files(tmp_path, table_source, last="author 3", **extra)
        problem = (
            r"group 'author 3' .*train \(train\.tsv:17\) and in test \(test\.tsv:6\); 1 of 10 groups are in several"
        )
        with pytest.raises(DataError, match=problem):
            build_task("mine", task(source), NO_PACKAGES, tmp_path / "out")

    def test_a_row_without_a_group_is_named_or_left_out(self, tmp_path, task, table_source):
        source = self.files(tmp_path, table_source, last=" ")
        with pytest.raises(
            DataError, match=r"test\.tsv:6: the group in column 'author' \(source\.group_column\) is empty"
        ):
            build_task("mine", task(source), NO_PACKAGES, tmp_path / "out")
        source = self.files(tmp_path, table_source, last=" ", on_bad_row="skip")
        build_task("mine", task(source), NO_PACKAGES, tmp_path / "out")
        assert read_task_manifest(tmp_path / "out")["dropped"]["empty_group"] == 1

    def test_a_threshold_needs_two_labels(self, tmp_path, task, table_source):
        write_tsv(
            tmp_path / "rows.tsv", [(f"text {n}", "abc"[n % 3], "") for n in range(60)], header=("text", "label", "x")
        )
        config = task(table_source(tmp_path / "rows.tsv"), threshold_metric="f1")
        with pytest.raises(DataError, match=r"tasks\.mine: threshold_metric f1 is for two labels, found 3: a, b, c"):
            build_task("mine", config, NO_PACKAGES, tmp_path / "out")
