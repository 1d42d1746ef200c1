"""Public data sets with the traps that they are known for, and a dataset read through `datasets`."""

from __future__ import annotations

import json

import datasets
import pytest

from bertline.foundation.bad_rows import BadRows
from bertline.foundation.errors import DataError
from bertline.kinds.build import build_task
from bertline.tasks.stored_rows import TextRows, read_rows, read_task_manifest
from bertline.tasks.table_source import OneLabel, SeveralLabels, hub_rows, read_table
from shipped_tasks import shipped

# The first lines of files as GLUE's download has them.
MNLI_HEADER = (
    "index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse",
    "sentence2_parse", "sentence1", "sentence2",
)  # fmt: skip
MNLI_LABELS = ("contradiction", "entailment", "neutral")


def write_mnli(path, num_rows, num_labels):
    header = [*MNLI_HEADER, *(f"label{number}" for number in range(1, num_labels + 1)), "gold_label"]
    with path.open("w") as handle:
        handle.write("\t".join(header) + "\n")
        for row in range(num_rows):
            label = MNLI_LABELS[row % 3]
            texts = [f'A "premise {path.name} {row}', f"hypothesis {row}"]
            handle.write("\t".join([*(f"{row}" for _ in range(8)), *texts, *[label] * (num_labels + 1)]) + "\n")


def test_mnli_is_read_with_both_of_its_dev_files(tmp_path, python_docs):
    for name, num_rows, num_labels in (("train", 90, 1), ("dev_matched", 12, 5), ("dev_mismatched", 15, 5)):
        write_mnli(tmp_path / f"{name}.tsv", num_rows, num_labels)
    build_task("mnli", shipped("mnli", tmp_path), python_docs, tmp_path / "out")
    counts = read_task_manifest(tmp_path / "out")["counts"]
    assert counts["test"] == 12 and counts["test_mismatched"] == 15 and counts["train"] + counts["dev"] == 90
    assert read_rows(tmp_path / "out", "test_mismatched", TextRows).texts[0] == 'A "premise dev_mismatched.tsv 0'


def hub_config(name, **changes):
    splits = {"dev_split": None, "test_split": None}
    return shipped("hub", None, **{"name": str(name), "revision": "main", **splits, **changes}).source


def test_a_dataset_is_read_by_column_names(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    rows = [{"text": f"text {number}", "label": number % 2} for number in range(10)]
    (tmp_path / "data" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    splits = hub_rows(hub_config(tmp_path / "data"), OneLabel, BadRows("error"))
    assert [(row.text, row.label) for row in splits["train"][:2]] == [("text 0", "0"), ("text 1", "1")]
    assert [*splits] == ["train"]
    with pytest.raises(DataError, match="no column 'words'.*'text', 'label'"):
        hub_rows(hub_config(tmp_path / "data", text_column="words"), OneLabel, BadRows("error"))
    with pytest.raises(DataError, match="split 'validation'"):
        hub_rows(hub_config(tmp_path / "data", dev_split="validation"), OneLabel, BadRows("error"))


@pytest.mark.parametrize("form", ["save_to_disk", "parquet"])
def test_a_saved_dataset_gives_the_rows_of_the_same_table(tmp_path, python_docs, form):
    rows = {"text": [f"text {n}" for n in range(60)], "label": [("good", "bad")[n % 2] for n in range(60)]}
    data = datasets.Dataset.from_dict(rows)
    if form == "parquet":
        (tmp_path / "data").mkdir()
        data.to_parquet(tmp_path / "data" / "train.parquet")
    else:
        datasets.DatasetDict(train=data).save_to_disk(tmp_path / "data")
    data.to_csv(tmp_path / "train.csv")
    read = {}
    for name, config in (
        ("hub", shipped("hub", None, name=str(tmp_path / "data"), dev_split=None, test_split=None)),
        ("table", shipped("table", tmp_path / "train.csv", train_file=None)),
    ):
        build_task(name, config, python_docs, tmp_path / name)
        parts = (read_rows(tmp_path / name, split, TextRows) for split in ("train", "dev", "test"))
        read[name] = sorted(
            (text, label) for part in parts for text, label in zip(part.texts, part.labels, strict=True)
        )
    assert read["hub"] == read["table"] and len(read["hub"]) == 60


def test_class_numbers_of_a_dataset_get_their_names_and_unlabelled_rows_are_bad_rows(tmp_path, monkeypatch):
    features = datasets.Features({
        "text": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["no", "yes"]),
        "topics": datasets.List(datasets.ClassLabel(names=["art", "sport"])),
    })  # fmt: skip
    rows = {"text": ["one", "two", "three"], "label": [1, 0, -1], "topics": [[0, 1], [], [1]]}
    data = datasets.Dataset.from_dict(rows, features=features)
    monkeypatch.setattr(datasets, "load_dataset", lambda *arguments, **options: data)
    config = hub_config("somewhere/some", on_bad_row="skip", extra_tests={"other": "other"})
    bad_rows = BadRows("skip")
    splits = hub_rows(config, OneLabel, bad_rows)
    assert [row.label for row in splits["train"]] == ["yes", "no"]
    assert [row.id for row in splits["test_other"]] == ["other:1", "other:2"]
    assert bad_rows.dropped == {"unknown_label": 2}
    several = hub_rows(hub_config("somewhere/some", label_column="topics"), SeveralLabels, BadRows("error"))
    assert [row.label for row in several["train"]] == [("art", "sport"), (), ("sport",)]
    with pytest.raises(DataError, match=r"some/train:3.*set it to null"):
        read_table(hub_config("somewhere/some"), shipped("mrpc", tmp_path), OneLabel)
