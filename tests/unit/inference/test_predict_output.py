"""The output of a file's predictions: complete or not there, and the same for any number of threads."""

from __future__ import annotations

import errno
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bertline.corpus.tables import TableRow
from bertline.foundation.errors import DataError
from bertline.inference import row_files
from bertline.inference.loading import load_folder
from bertline.inference.model import LoadedModel
from bertline.inference.predict import predict_file

WORDS = ("cat", "dog", "mat", "the cat sat on the mat", "a dog", "the", "cafe.", "sat")
NUM_ROWS = 11


@pytest.fixture
def model(classifier_folder: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedModel:
    monkeypatch.setattr(row_files, "_ROWS_TOGETHER", 2)
    return load_folder(str(classifier_folder), device="cpu")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"n": n, "text": WORDS[n % len(WORDS)]}) + "\n" for n in range(NUM_ROWS)))
    return path


def test_a_complete_output_stays_until_the_new_one_is_complete(
    model: LoadedModel, source: Path, tmp_path: Path
) -> None:
    rows, target = source.read_text().splitlines(keepends=True), tmp_path / "out.jsonl"
    target.write_text("old\n")
    source.write_text("".join(rows[:7]) + "{torn\n" + "".join(rows[8:]))
    with pytest.raises(DataError, match=r"in\.jsonl:8"):
        predict_file(model, source, target, num_threads=1)
    assert target.read_text() == "old\n"
    source.write_text("".join(rows))
    assert predict_file(model, source, target).num_rows == NUM_ROWS
    assert [json.loads(line)["n"] for line in target.open()] == list(range(NUM_ROWS))
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "out.jsonl"}


def test_what_fails_in_reading_is_an_error_of_the_input(
    model: LoadedModel, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = row_files.file_rows(source, row_files.PLAIN_LAYOUT)

    def failing() -> Iterator[TableRow]:
        yield from itertools.islice(rows, 5)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(row_files, "file_rows", lambda *_: failing())
    with pytest.raises(DataError, match=r"in\.jsonl cannot be read: Input/output error"):
        predict_file(model, source, tmp_path / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_blocks_are_joined_to_row_groups_of_parquet(
    model: LoadedModel, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_files, "_ROWS_OF_A_GROUP", 5)
    predict_file(model, source, tmp_path / "out.parquet")
    file = pq.ParquetFile(tmp_path / "out.parquet")
    assert [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)] == [6, 5]
    assert file.read()["n"].to_pylist() == list(range(NUM_ROWS))


def test_what_a_row_gets_does_not_depend_on_the_number_of_threads(
    model: LoadedModel, source: Path, tmp_path: Path
) -> None:
    for num_threads in (1, 3):
        predict_file(model, source, tmp_path / f"{num_threads}.csv", num_threads=num_threads)
    assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "3.csv").read_bytes()
