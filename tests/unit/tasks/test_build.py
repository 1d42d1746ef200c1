"""A user's own table, from files to the artifact."""

from __future__ import annotations

import csv

import pytest

from bertline.foundation.errors import DataError
from bertline.kinds.build import build_task
from bertline.tasks.stored_rows import TextRows, read_rows, read_task_manifest


def write_csv(path, rows, header=("text", "label")):
    with path.open("w", newline="") as handle:
        csv.writer(handle).writerows([header, *rows])


def rows_of(out, split):
    return read_rows(out, split, TextRows)


@pytest.fixture
def reviews(tmp_path):
    """A folder with one file of 200 rows of two labels."""
    folder = tmp_path / "reviews"
    folder.mkdir()
    write_csv(folder / "all.csv", [(f"text {number}", "good" if number % 3 else "bad") for number in range(200)])
    return folder


@pytest.fixture
def build(tmp_path, task, table_source, python_docs):
    def make(path, *, source=None, **changes):
        out = tmp_path / "out"
        build_task("reviews", task(table_source(path, **(source or {})), **changes), python_docs, out)
        return out

    return make


def test_the_side_of_a_row_does_not_depend_on_the_other_rows(build, reviews):
    before = set(rows_of(build(reviews / "all.csv"), "test").texts)
    write_csv(reviews / "all.csv", [(f"text {number}", "good" if number % 3 else "bad") for number in range(50, 300)])
    after = set(rows_of(build(reviews / "all.csv"), "test").texts)
    assert {text for text in before if int(text.split()[1]) >= 50} <= after


@pytest.mark.parametrize("fractions", [(0.1, 0.1), (0.2, 0.3)])
def test_one_file_gives_each_label_its_share_of_each_split(build, reviews, fractions):
    sizes = {"a": 300, "b": 60, "c": 6, "d": 3}
    rows = [(f"{label} {number}", label) for label, size in sizes.items() for number in range(size)]
    write_csv(reviews / "all.csv", rows)
    dev, test = fractions
    counts = read_task_manifest(build(reviews / "all.csv", dev_fraction=dev, test_fraction=test))["labels_by_split"]
    for label, size in sizes.items():
        left = size - counts["test"][label]
        for split, share in (("test", test * size), ("dev", dev * left)):
            assert max(round(0.8 * share), 1) <= counts[split][label] <= max(round(1.2 * share), 1)
        assert counts["train"][label] == left - counts["dev"][label] > 0


@pytest.mark.parametrize("split", ["dev", "test"])
@pytest.mark.parametrize("metric", ["accuracy", "f1"])
def test_a_split_of_one_label_is_refused_before_anything_is_scored(build, reviews, split, metric):
    write_csv(reviews / "one.csv", [(f"new {number}", "bad") for number in range(30)])
    files = {"train_file": "all.csv", f"{split}_file": "one.csv"}
    with pytest.raises(DataError, match=f"all {split} rows have 'bad', so no score .*leave its file out"):
        build(reviews, source=files, metric=metric, labels=("bad", "good"))
    # Accuracy of an extra test of one label is its recall.
    files = {"train_file": "all.csv", "extra_tests": {"hard": "one.csv"}}
    if metric == "accuracy":
        assert read_task_manifest(build(reviews, source=files))["counts"]["test_hard"] == 30
    else:
        with pytest.raises(DataError, match="all test_hard rows have 'bad'"):
            build(reviews, source=files, metric=metric, labels=("bad", "good"))


def test_equal_texts_stay_on_one_side(build, reviews):
    rows = [
        (f"Text  {number // 2}" if number % 2 else f"text {number // 2}", "ab"[number // 2 % 2])
        for number in range(200)
    ]
    write_csv(reviews / "all.csv", rows)
    out = build(reviews / "all.csv")
    sides = [{text.casefold().split()[1] for text in rows_of(out, split).texts} for split in ("train", "dev", "test")]
    assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2]


def test_train_is_in_a_random_order_and_its_beginning_is_a_smaller_set(build, reviews):
    train = rows_of(build(reviews / "all.csv"), "train")
    numbers = [int(text.split()[1]) for text in train.texts]
    assert numbers != sorted(numbers)
    assert train.first(10).ids == train.ids[:10]
    assert len(train.first(None)) == len(train)


def test_building_twice_gives_the_same_bytes(build, reviews):
    def contents(out):
        return {file.name: file.read_bytes() for file in sorted(out.iterdir())}

    assert contents(build(reviews / "all.csv")) == contents(build(reviews / "all.csv"))


@pytest.mark.parametrize(
    ("rows", "header", "changes", "says"),
    [
        ([("x", "a")], ("text", "category"), {}, ["all.csv:2", "no column 'label'", "'text', 'category'"]),
        ([("x", "a"), ("y", "-1")], ("text", "label"), {"labels": ("a", "b")}, ["'-1'", "'a', 'b'"]),
        ([(f"x{n}", "a") for n in range(40)], ("text", "label"), {}, ["all", "'a'", "no score can tell"]),
        ([(f"x{n}", f"l{n}") for n in range(60)], ("text", "label"), {}, ["different labels", "label_column"]),
        ([], ("text", "label"), {}, ["train split has no rows"]),
        ([(f"x{n}", "ab"[n % 2]) for n in range(60)], ("text", "label"), {"num_train_rows": 500}, ["500", "at most"]),
        ([(f"x{n}", "ab"[n % 2]) for n in range(60)], ("text", "label"), {"test_fraction": 0.0}, ["test split has no"]),
    ],
)  # fmt: skip
def test_bad_data_is_refused_with_its_place_and_its_mending(build, reviews, tmp_path, rows, header, changes, says):
    write_csv(reviews / "all.csv", rows, header)
    with pytest.raises(DataError) as error:
        build(reviews / "all.csv", **changes)
    for words in says:
        assert words in str(error.value)
    assert not (tmp_path / "out").exists()
