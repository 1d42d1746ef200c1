"""Tables of several labels, of numbers and of extra tests; bad rows as errors and as counts."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertline.foundation.errors import DataError
from bertline.kinds.registry import kind_part
from bertline.tasks.build import build_task
from bertline.tasks.stored_rows import MultiLabelRows, NumberRows, TextRows, read_rows, read_task_manifest
from no_packages import NO_PACKAGES

TOPICS = [["sport"], ["politics", "sport"], [], ["art", "politics"]]


def write_tsv(path, rows, header=("text", "label")):
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in [header, *rows]))


def stored(out, config, split):
    return kind_part(config.kind, "data").stored_rows(out, split)


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
    @pytest.mark.parametrize("ending", ["tsv", "jsonl", "parquet"])
    def test_every_format_gives_the_same_labels(self, tmp_path, task, table_source, built, ending):
        rows = [{"text": f"text {number}", "label": TOPICS[number % 4]} for number in range(80)]
        path = tmp_path / f"rows.{ending}"
        if ending == "tsv":
            write_tsv(path, [(row["text"], "|".join(row["label"])) for row in rows])
        elif ending == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            pq.write_table(pa.Table.from_pylist(rows), path)
        source = table_source(path, label_separator="|" if ending == "tsv" else None)
        out = built(task(source, multi_label=True, metric="micro_f1"))
        assert read_task_manifest(out)["labels"] == ["art", "politics", "sport"]
        for split in ("train", "dev", "test"):
            for text, labels in labels_of(out, split).items():
                assert labels == TOPICS[int(text.split()[1]) % 4]

    def test_the_manifest_counts_a_row_once_for_each_label(self, tmp_path, task, table_source, built):
        write_tsv(tmp_path / "rows.tsv", [(f"text {n}", "|".join(TOPICS[n % 4])) for n in range(80)])
        out = built(task(table_source(tmp_path / "rows.tsv", label_separator="|"), multi_label=True))
        counts = read_task_manifest(out)["labels_by_split"]
        assert {label: sum(split[label] for split in counts.values()) for label in counts["train"]} == {
            "art": 20, "politics": 40, "sport": 40,
        }  # fmt: skip

    def test_rows_that_all_have_the_same_labels_are_refused(self, tmp_path, task, table_source, built):
        # In whatever order a row has them.
        write_tsv(tmp_path / "rows.tsv", [(f"text {n}", "b|a" if n % 2 else "a|b") for n in range(40)])
        with pytest.raises(DataError, match="all .* train rows have the label 'a', 'b'.*rows without it"):
            built(task(table_source(tmp_path / "rows.tsv", label_separator="|"), multi_label=True))

    @pytest.mark.parametrize("labels", [None, ("spam",)])
    def test_one_label_needs_rows_with_it_and_rows_without(self, tmp_path, task, table_source, built, labels):
        config = task(table_source(tmp_path / "rows.jsonl"), multi_label=True, labels=labels, metric="micro_f1")
        for with_it in (["spam"], []):
            rows = [{"text": f"text {number}", "label": with_it} for number in range(40)]
            (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            with pytest.raises(DataError, match=r"train rows have the label ('spam'|no label); .*rows without it"):
                built(config)
        rows = [{"text": f"text {number}", "label": ["spam"] * (number % 2)} for number in range(40)]
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        found = labels_of(built(config), "train")
        assert {len(given) for given in found.values()} == {0, 1}

    def test_a_list_of_labels_without_multi_label_is_refused(self, tmp_path, task, table_source, built):
        (tmp_path / "rows.jsonl").write_text('{"text": "one", "label": ["a"]}\n')
        with pytest.raises(DataError, match=r"rows\.jsonl:1.*multi_label: true"):
            built(task(table_source(tmp_path / "rows.jsonl")))


def test_integer_classes_have_the_index_of_their_value(tmp_path, task, table_source, built):
    write_tsv(tmp_path / "rows.tsv", [(f"text {number}", number % 12) for number in range(120)])
    assert read_task_manifest(built(task(table_source(tmp_path / "rows.tsv"))))["labels"] == [*map(str, range(12))]


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
            (("text", "high"), "not_a_number", "'high' is no number"),
            (("text", "7"), "number_outside_the_scale", "scale from 0 to 5"),
            (("text", ""), "empty_label", "number is empty"),
            (("", "3"), "empty_text", "'text' is empty"),
        ],
    )
    def test_a_bad_row_is_an_error_with_its_place_or_is_counted(
        self, tmp_path, number_task, table_source, built, bad, reason, says
    ):
        write_tsv(tmp_path / "rows.tsv", [bad, *((f"text {n}", n % 6) for n in range(60))])
        with pytest.raises(DataError) as error:
            built(number_task(table_source(tmp_path / "rows.tsv")))
        assert "rows.tsv:2" in str(error.value) and says in str(error.value)
        assert "on_bad_row: skip" in str(error.value)
        out = built(number_task(table_source(tmp_path / "rows.tsv", on_bad_row="skip")))
        assert read_task_manifest(out)["dropped"] == {reason: 1}
        assert sum(read_task_manifest(out)["counts"].values()) == 60

    def test_one_number_everywhere_is_refused(self, tmp_path, number_task, table_source, built):
        write_tsv(tmp_path / "rows.tsv", [(f"text {n}", 3) for n in range(60)])
        with pytest.raises(DataError, match="all .* have the number 3"):
            built(number_task(table_source(tmp_path / "rows.tsv")))


class TestBadRowsOfClassification:
    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            (("", "a"), "empty_text"),
            (("text", ""), "empty_label"),
            (("text", "c"), "unknown_label"),
            (("text",), "too_few_fields"),
            (("text", "a", "b"), "too_many_fields"),
        ],
    )
    def test_a_bad_row_is_an_error_with_its_place_or_is_counted(self, tmp_path, task, table_source, built, bad, reason):
        write_tsv(tmp_path / "rows.tsv", [bad, *labelled(60)])
        with pytest.raises(DataError, match=r"rows\.tsv:2"):
            built(task(table_source(tmp_path / "rows.tsv"), labels=("a", "b")))
        source = table_source(tmp_path / "rows.tsv", on_bad_row="skip")
        manifest = read_task_manifest(built(task(source, labels=("a", "b"))))
        assert manifest["dropped"] == {reason: 1}
        assert sum(manifest["counts"].values()) == 60

    def test_rows_that_lack_a_column_are_counted_and_a_file_that_lacks_it_is_refused(
        self, tmp_path, task, table_source, built
    ):
        rows = [{"text": text, "label": label} for text, label in labelled(60)]
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [{"text": "x"}, *rows]))
        source = table_source(tmp_path / "rows.jsonl", on_bad_row="skip")
        assert read_task_manifest(built(task(source)))["dropped"] == {"missing_column": 1}
        with pytest.raises(DataError, match=r"no row can be used.*no column 'words'.*'text'"):
            built(task(table_source(tmp_path / "rows.jsonl", on_bad_row="skip", text_column="words")))


@pytest.mark.parametrize("text", ["NaN", "[1]", '["one"]', '{"a": "b"}', "true", "false", '"\\ud800 x"'])
def test_a_text_that_is_none_is_an_error_with_its_line_or_is_counted(tmp_path, task, table_source, built, text):
    rows = [json.dumps({"text": text, "label": label}) for text, label in labelled(60)]
    (tmp_path / "rows.jsonl").write_text("\n".join([rows[0], f'{{"text": {text}, "label": "a"}}', *rows[1:]]))
    with pytest.raises(DataError, match=r"rows\.jsonl:2: .*on_bad_row: skip"):
        built(task(table_source(tmp_path / "rows.jsonl")))
    manifest = read_task_manifest(built(task(table_source(tmp_path / "rows.jsonl", on_bad_row="skip"))))
    assert manifest["dropped"] == {"half_character" if "ud800" in text else "wrong_type": 1}
    assert sum(manifest["counts"].values()) == 60


def test_a_number_in_a_column_of_texts_is_taken_as_it_is_written(tmp_path, task, table_source, built):
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({"text": n, "label": "ab"[n % 2]}) + "\n" for n in range(60))
    )
    assert set(read_rows(built(task(table_source(tmp_path / "rows.jsonl"))), "train", TextRows).texts) <= {
        str(n) for n in range(60)
    }


def test_a_label_is_one_label_however_its_cells_are_written(tmp_path, task, table_source, built):
    values = [1, 1.0, "1.0", "1", True, "True", "true"]
    lines = [json.dumps({"text": f"number {i}", "label": values[i % len(values)]}) for i in range(70)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    source = table_source(tmp_path / "rows.jsonl")
    for labels in (None, ("1.0", "True")):
        assert read_task_manifest(built(task(source, labels=labels)))["labels"] == ["1", "true"]


@pytest.mark.parametrize("seed", range(20))
def test_a_few_rows_are_enough_for_three_splits_with_any_seed(tmp_path, task, table_source, built, seed):
    write_tsv(tmp_path / "rows.tsv", labelled(20))
    config = task(table_source(tmp_path / "rows.tsv"), split_seed=seed, dev_fraction=0.1, test_fraction=0.1)
    counts = read_task_manifest(built(config))["counts"]
    assert all(1 <= counts[split] <= 3 for split in ("dev", "test"))


def test_skipped_rows_and_rare_labels_take_nothing_from_the_number_of_train_rows(tmp_path, task, table_source, built):
    rows = [(f"text {n}", "rare" if n == 7 else "unknown" if n % 2 else "ab"[n // 2 % 2]) for n in range(120)]
    write_tsv(tmp_path / "rows.tsv", rows)
    source = table_source(tmp_path / "rows.tsv", on_bad_row="skip")
    manifest = read_task_manifest(built(task(source, labels=("a", "b", "rare"), num_train_rows=30)))
    assert manifest["counts"]["train"] == 30
    assert manifest["dropped"]["unknown_label"] == 59


class TestSplits:
    @pytest.fixture
    def folder(self, tmp_path):
        folder = tmp_path / "folder"
        folder.mkdir()
        write_tsv(folder / "train.tsv", labelled(200))
        write_tsv(folder / "dev.tsv", labelled(30, first=190))
        write_tsv(folder / "other.tsv", [*labelled(20, first=1000), *labelled(10)])
        return folder

    def test_dev_can_stand_in_for_the_test_and_tuning_then_uses_a_share_of_train(
        self, task, table_source, built, folder
    ):
        source = table_source(folder, train_file="train.tsv", test_file="dev.tsv", dev_file=None)
        out = built(task(source, dev_fraction=0.1))
        manifest = read_task_manifest(out)
        assert read_rows(out, "test", TextRows).texts == [text for text, _ in labelled(30, first=190)]
        assert 10 <= manifest["counts"]["dev"] <= 30
        assert sum(manifest["counts"].values()) + sum(manifest["dropped"].values()) == 230
        assert sum(manifest["dropped"].values()) == 10

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

    def test_an_extra_test_beside_a_single_file_is_refused(self, task, table_source, built, folder):
        with pytest.raises(DataError, match=r"source\.extra_tests"):
            built(task(table_source(folder / "train.tsv", extra_tests={"other": "other.tsv"})))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"separator": "||"}, "separator must be one character"),
        ({"max_fields": 2}, "quoting: false"),
        ({"label_pattern": "("}, "no regular expression"),
        ({"label_pattern": "NUM"}, "has no group"),
        ({"label_separator": ""}, "label_separator is empty"),
        ({"extra_tests": {"../x": "x.tsv"}}, "letters, digits"),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(table_source, changes, says):
    with pytest.raises(ValueError, match=says):
        table_source("folder", **changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"labels": ("a",)}, "2 at least"),
        ({"labels": ("a", "a")}, "each once"),
        ({"labels": ("1", "1.0")}, "each once"),
        ({"multi_label": True, "metric": "matthews"}, "macro_f1 or micro_f1"),
        ({"long_texts": "windows", "window_overlap": 16}, "below half of max_length"),
    ],
)
def test_a_classification_that_makes_no_sense_is_refused(task, table_source, changes, says):
    with pytest.raises(ValueError, match=says):
        task(table_source("folder"), **changes)
    with pytest.raises(ValueError, match="multi_label: true"):
        task(table_source("folder", label_separator="|"))


def test_a_regression_that_makes_no_sense_is_refused(number_task, table_source):
    with pytest.raises(ValueError, match="low must be below high"):
        number_task(table_source("folder"), low=5.0)
    with pytest.raises(ValueError, match=r"source\.text_pair_column"):
        number_task(table_source("folder"), head="cosine")
    with pytest.raises(ValueError, match="one number"):
        number_task(table_source("folder", label_separator="|"))


class TestClusters:
    ROWS = tuple((f"text {n}", "ab"[n % 2], f"author {n // 5}") for n in range(200))

    @pytest.mark.parametrize("name", ["reviews.tsv", "reviews #2.tsv", "#1.tsv"])
    def test_ids_are_no_clusters_whatever_the_name_of_the_file(self, tmp_path, task, table_source, built, name):
        write_tsv(tmp_path / name, [row[:2] for row in self.ROWS])
        out = built(task(table_source(tmp_path / name)))
        for split in ("train", "dev", "test"):
            rows = read_rows(out, split, TextRows)
            assert rows.clusters is None and rows.sources() == rows.ids

    @pytest.mark.parametrize("kind", ["classification", "several labels", "regression"])
    def test_a_column_of_clusters_keeps_its_rows_in_one_split(self, tmp_path, task, number_task, table_source, kind):
        rows = [(text, n % 5 if kind == "regression" else label, author)
                for n, (text, label, author) in enumerate(self.ROWS)]  # fmt: skip
        write_tsv(tmp_path / "rows.tsv", rows, header=("text", "label", "author"))
        source = table_source(tmp_path / "rows.tsv", cluster_column="author")
        config = number_task(source) if kind == "regression" else task(source, multi_label=kind == "several labels")
        build_task("mine", config, NO_PACKAGES, tmp_path / "out")
        splits = [stored(tmp_path / "out", config, split) for split in ("train", "dev", "test")]
        assert sum(map(len, splits)) == 200
        found = [set(rows.sources()) for rows in splits]
        assert set.union(*found) == {row[2] for row in self.ROWS} and sum(map(len, found)) == 40
        for rows in splits:
            assert rows.sources() == [f"author {int(text.split()[1]) // 5}" for text in rows.texts]
            assert rows.first(3).sources() == rows.sources()[:3]

    def test_a_missing_column_of_clusters_is_named(self, tmp_path, task, table_source, built):
        write_tsv(tmp_path / "rows.tsv", labelled(40))
        with pytest.raises(DataError, match=r"there is no column 'author' \(source.cluster_column\)"):
            built(task(table_source(tmp_path / "rows.tsv", cluster_column="author")))


def test_a_test_of_one_number_is_refused(tmp_path, number_task, table_source):
    """No correlation is defined there."""
    write_tsv(tmp_path / "train.tsv", [(f"text {n}", n % 5) for n in range(60)])
    write_tsv(tmp_path / "test.tsv", [(f"new {n}", 3) for n in range(20)])
    source = table_source(tmp_path, train_file="train.tsv", test_file="test.tsv")
    with pytest.raises(DataError, match="all test rows have '3', so no score"):
        build_task("mine", number_task(source), NO_PACKAGES, tmp_path / "out")
