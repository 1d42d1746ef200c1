"""What a person names on the command line becomes a task that is valid and reads the files as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertline.cli.finetune import student_of
from bertline.cli.task_arguments import (
    GivenFiles,
    file_format,
    given_files,
    placed,
    search_task,
    task_name_of,
    task_of_files,
    what_is_read,
)
from bertline.foundation.errors import ConfigError, DataError
from bertline.kinds.build import build_task
from corpora import NO_PACKAGES
from shipped_tasks import shipped_task, validated

NO_SPLITS: dict[Any, Path | None] = {"train": None, "dev": None, "test": None}
CONLL = "".join(f"Ada B-PER\nmet O\nBob{i} B-PER\n\nno{i} O\none O\n\n" for i in range(30))
FILES = {
    "csv": "text,label\n" + "".join(f"text number {i},{'ab'[i % 2]}\n" for i in range(60)),
    "tsv": "text\tlabel\n" + "".join(f"text, number {i}\t{'ab'[i % 2]}\n" for i in range(60)),
    "jsonl": "".join(f'{{"text": "number {i}", "label": "{"ab"[i % 2]}"}}\n' for i in range(60)),
    "conll": CONLL,
    "json": json.dumps([{"text": f"number {i}", "label": "ab"[i % 2]} for i in range(60)], indent=2),
}


def built(given: GivenFiles, tmp_path: Path, **changes: Any) -> dict[str, float | int]:
    task, _ = placed(task_of_files(given, changes.pop("kind", None), changes, shipped_task), given, tmp_path / "linked")
    return build_task("mine", validated("mine", task), NO_PACKAGES, tmp_path / "rows")


def given_text(tmp_path: Path, content: str, name: str = "rows.csv") -> GivenFiles:
    (tmp_path / name).write_text(content)
    return given_splits(tmp_path / name)


def given_splits(data: Path | None = None, **splits: Path) -> GivenFiles:
    given = given_files(data, {**NO_SPLITS, **splits}, None)
    assert given is not None
    return given


@pytest.mark.parametrize("kind", list(FILES))
def test_each_format_is_told_by_its_ending_and_one_file_becomes_three_splits(tmp_path: Path, kind: str) -> None:
    given = given_text(tmp_path, FILES[kind], f"rows.{kind}")
    assert given.format == kind
    figures = built(given, tmp_path)
    assert min(figures[f"{split}_rows"] for split in ("train", "dev", "test")) >= 1


def test_rows_with_the_columns_of_squad_are_squad(tmp_path: Path) -> None:
    rows = [{"id": "1", "context": "It rained.", "question": "What?", "answers": {"text": ["It"], "answer_start": [0]}}]
    (tmp_path / "d.json").write_text(json.dumps(rows))
    (tmp_path / "e.json").write_text('{"version": "2.0", "data": [{"title": "a", "paragraphs": []}]}')
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    pq.write_table(pa.table({"context": ["a"], "question": ["b"]}), tmp_path / "b.parquet")
    (tmp_path / "c.jsonl").write_text(json.dumps(rows[0]) + "\n")
    found = [file_format(tmp_path / name) for name in ("a.parquet", "b.parquet", "c.jsonl", "d.json", "e.json")]
    assert found == ["squad", "parquet", "squad", "squad", "squad"]


def test_a_folder_gives_the_files_named_after_the_splits(tmp_path: Path) -> None:
    for name in ("train.csv", "valid.csv", "my_test.csv"):
        (tmp_path / name).write_text(FILES["csv"])
    named = {split: path.name for split, path in given_splits(tmp_path).files.items()}
    assert named == {"train": "train.csv", "dev": "valid.csv", "test": "my_test.csv"}


def test_numbers_of_any_scale_are_a_regression_where_that_is_asked(tmp_path: Path) -> None:
    content = "text,score\n" + "".join(f"number {i},{i / 4}\n" for i in range(60))
    task = task_of_files(given_text(tmp_path, content), "regression", {}, shipped_task)
    assert (task["kind"], task["low"], task["high"]) == ("regression", 0.0, 14.75)
    assert built(given_text(tmp_path, content), tmp_path, kind="regression")["train_rows"] > 30


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_columns_whose_names_are_numbers_are_found(tmp_path: Path, kind: str) -> None:
    given = given_text(tmp_path, "0,1\n" + "".join(f"text {i},{i % 5}\n" for i in range(60)))
    task = task_of_files(given, kind, {"text_column": 0, "label_column": 1}, shipped_task)
    assert "not read" not in what_is_read(task, given)
    assert built(given, tmp_path, kind=kind, text_column=0, label_column=1)["train_rows"] > 30


def test_a_column_of_marks_for_each_label_is_a_task_of_several_labels(tmp_path: Path) -> None:
    rows = "".join(f"number {i},{i % 2},{('False', 'True')[i % 3 == 0]},x\n" for i in range(60))
    given = given_text(tmp_path, f"text,odd,third,label\n{rows}")
    task = task_of_files(given, None, {"label_columns": ["odd", "third"]}, shipped_task)
    told = "rows.csv as csv, classification: text_column=text, label_columns=[odd,third], not read: label"
    assert task["multi_label"] and what_is_read(task, given) == told
    assert built(given, tmp_path, label_columns=["odd", "third"])["num_labels"] == 2
    train = pq.read_table(tmp_path / "rows/train.parquet").to_pylist()
    assert all(row["labels"] == [i % 2, int(i % 3 == 0)] for row in train for i in [int(row["texts"].split()[1])])
    with pytest.raises(DataError, match=r"no column 'fifth' \(label_columns\)"):
        task_of_files(given, None, {"label_columns": ["odd", "fifth"]}, shipped_task)
    given = given_text(tmp_path, f"text,odd,third,label\nlast,2,true,x\n{rows}")
    with pytest.raises(DataError, match=r"column 'odd' \(source.label_columns\) is '2'; expected 0, 1, true or false"):
        built(given, tmp_path, label_columns=["odd", "third"])
    with pytest.raises(ConfigError, match="give either label_column or label_columns"):
        built(given, tmp_path, label_columns=["odd"], label_column="third")


@pytest.mark.parametrize(
    ("names", "qrels"),
    [
        (["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"], [None, None, "qrels/test.tsv"]),
        (
            ["corpus.csv", "queries.tsv", "qrels/test.tsv", "qrels/train.tsv"],
            ["qrels/train.tsv", None, "qrels/test.tsv"],
        ),
        (["corpus.jsonl", "queries.jsonl", "qrels/train.tsv"], [None, None, "qrels/train.tsv"]),
        (["corpus.json", "queries.jsonl.gz", "qrels.csv"], [None, None, "qrels.csv"]),
    ],
)
def test_a_folder_of_documents_queries_and_judgements_is_a_search(
    tmp_path: Path, names: list[str], qrels: list[str | None]
) -> None:
    assert search_task(tmp_path, shipped_task) is None and search_task(None, shipped_task) is None
    (tmp_path / "qrels").mkdir()
    for number, name in enumerate(names):
        if number == 2:
            with pytest.raises(DataError, match="has a corpus and queries, and no qrels.tsv"):
                search_task(tmp_path, shipped_task)
        (tmp_path / name).touch()
    task = search_task(tmp_path, shipped_task)
    assert task is not None and validated("search", task).kind == "retrieval"
    assert [task["source"][f"{split}_qrels"] for split in ("train", "dev", "test")] == qrels


def test_the_scale_of_numbers_is_that_of_all_splits(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\none,1\ntwo,4.8\n")
    (tmp_path / "b.csv").write_text("text,label\nthree,5.0\n")
    given = given_splits(train=tmp_path / "a.csv", test=tmp_path / "b.csv")
    task = task_of_files(given, "regression", {}, shipped_task)
    assert (task["low"], task["high"]) == (1.0, 5.0)


def test_rows_are_named_by_the_users_own_file(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    given_text(tmp_path / "a", FILES["csv"], "my reviews.csv")
    for name in ("my test.csv", "my reviews.csv"):
        given_text(tmp_path / "b", FILES["csv"].replace("text number", "other"), name)
        built(given_splits(train=tmp_path / "a/my reviews.csv", test=tmp_path / "b" / name), tmp_path)
        ids = [pq.read_table(tmp_path / "rows" / f"{split}.parquet")["ids"][0].as_py() for split in ("train", "test")]
        own = ["my reviews.csv", name] if name == "my test.csv" else ["train_my reviews.csv", f"test_{name}"]
        assert [each.rpartition(":")[0] for each in ids] == own


def test_what_cannot_be_told_is_named_with_what_there_is(tmp_path: Path) -> None:
    given = given_text(tmp_path, "alpha,beta\n" + "x,y\n" * 20)
    with pytest.raises(DataError, match=r"which column is the text cannot .*.alpha., .beta..*text_column=COLUMN"):
        task_of_files(given, None, {}, shipped_task)
    semicolons = given_text(tmp_path, "alpha;beta\n" + "x;y\n" * 20, "semicolons.csv")
    with pytest.raises(DataError, match=r"cannot be told.*separator=';'"):
        task_of_files(semicolons, None, {}, shipped_task)
    with pytest.raises(DataError, match=r"no column 'gamma' \(label_column\).*'alpha', 'beta'"):
        task_of_files(given, None, {"text_column": "alpha", "label_column": "gamma"}, shipped_task)
    with pytest.raises(ConfigError, match="kind is 'token_classification', and the files are csv"):
        task_of_files(given, "token_classification", {}, shipped_task)
    (tmp_path / "words").write_text("nothing here is a row\nnor here\n")
    with pytest.raises(DataError, match="the ending .* tells no format.*format=csv"):
        file_format(tmp_path / "words")


def test_files_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(FILES["csv"])
    with pytest.raises(ConfigError, match="both given"):
        given_files(file, {**NO_SPLITS, "train": file}, None)
    with pytest.raises(ConfigError, match="test is given without train"):
        given_files(None, {**NO_SPLITS, "test": file}, None)
    with pytest.raises(DataError, match=r"train is .*gone\.csv, which is not a file"):
        given_files(None, {**NO_SPLITS, "train": tmp_path / "gone.csv"}, None)
    assert given_files(None, NO_SPLITS, None) is None


def test_the_task_is_named_after_its_file_or_the_folder_of_train(tmp_path: Path) -> None:
    (tmp_path / "Hotel Reviews").mkdir()
    train = tmp_path / "Hotel Reviews" / "train.csv"
    for path, name in ((train, "hotel_reviews"), (tmp_path / "a-b.csv", "a_b")):
        assert task_name_of(GivenFiles(files={"train": path}, format="csv"), None) == name
    with pytest.raises(ConfigError, match="letters, digits and underscores"):
        task_name_of(None, "a/b")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"student_layers": 3}, "student_layers takes layers of the teacher.*give teacher=FOLDER"),
        ({"student_layers": 3, "teacher": "it", "start_from": "other"}, "leave start_from out"),
        ({"teacher": "it", "start_from": ["a", "b"]}, "a teacher has one student: give one encoder"),
    ],
)
def test_a_student_is_named_once(arguments: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertline.finetuning.task_file.read_teacher", lambda folder: None)
    with pytest.raises(ConfigError, match=problem):
        student_of({"student_layers": None, "teacher": None, "start_from": None, **arguments})
