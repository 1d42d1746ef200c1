"""Outputs that are not complete: what a stopped call leaves, and what the next one makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bertline.foundation.errors import DataError
from bertline.foundation.files import lock_file
from bertline.inference import row_files
from bertline.inference.loading import load_folder
from bertline.inference.model import LoadedModel
from bertline.inference.predict import predict_file

WORDS = ("cat", "dog", "mat", "the cat sat on the mat", "a dog", "the", "cafe.", "sat")
FORMATS = ("jsonl", "csv", "tsv.gz", "jsonl.gz", "parquet")
NUM_ROWS = 11


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def model(classifier_folder: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedModel:
    monkeypatch.setattr(row_files, "_ROWS_TOGETHER", 2)
    return load_folder(str(classifier_folder), device="cpu")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"n": n, "text": WORDS[n % len(WORDS)]}) + "\n" for n in range(NUM_ROWS)))
    return path


def stop_after(model: LoadedModel, num_blocks: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """End the next call after some blocks; gives the numbers of rows that were predicted."""
    task: Any = model.task
    predict, sizes = task.file_outputs.__func__, list[int]()

    def outputs(self: Any, *inputs: list[Any]) -> list[dict[str, Any]]:
        if len(sizes) == num_blocks:
            raise Killed
        sizes.append(len(inputs[0]))
        return predict(self, *inputs)

    monkeypatch.setattr(type(task), "file_outputs", outputs)
    return sizes


def leave_unfinished(
    model: LoadedModel, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch, *, num_blocks: int
) -> None:
    """An output as a kill after some blocks leaves it."""
    with monkeypatch.context() as patch:
        stop_after(model, num_blocks, patch)
        with pytest.raises(Killed):
            predict_file(model, source, target)


def content(path: Path) -> Any:
    return pq.read_table(path).to_pylist() if path.suffix == ".parquet" else path.read_bytes()


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("ending", FORMATS)
def test_a_stopped_call_is_continued_to_the_same_output_and_a_torn_block_is_predicted_again(
    model: LoadedModel, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, torn: bool
) -> None:
    whole, target = tmp_path / f"whole.{ending}", tmp_path / f"out.{ending}"
    predict_file(model, source, whole)
    leave_unfinished(model, source, target, monkeypatch, num_blocks=3)
    assert not target.exists()
    if torn:
        block = tmp_path / f"out.{ending}.unfinished" / "blocks" / "00001" / "rows"
        block.write_bytes(block.read_bytes()[:-5])
    with monkeypatch.context() as patch:
        sizes = stop_after(model, 99, patch)
        done = predict_file(model, source, target)
    resumed = 4 if torn else 6
    assert (done.num_rows, done.num_resumed, sum(sizes)) == (NUM_ROWS, resumed, NUM_ROWS - resumed)
    assert content(target) == content(whole)
    assert {path.name for path in tmp_path.iterdir()} == {source.name, whole.name, target.name}


@pytest.mark.parametrize("change", ["model", "options"])
def test_blocks_of_another_model_or_other_options_are_predicted_again(
    model: LoadedModel, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    target = tmp_path / "out.jsonl"
    leave_unfinished(model, source, target, monkeypatch, num_blocks=2)
    if change == "model":
        next(iter(model.model.parameters())).data.add_(0.1)
    listed = 1 if change == "options" else None
    assert predict_file(model, source, target, num_probabilities=listed).num_resumed == 0


def test_rows_that_have_changed_since_are_predicted_again(
    model: LoadedModel, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, rows = tmp_path / "out.jsonl", source.read_text().splitlines(keepends=True)
    leave_unfinished(model, source, target, monkeypatch, num_blocks=3)
    source.write_text("".join(rows[:3] + rows[4:]))
    assert predict_file(model, source, target).num_resumed == 2
    assert [json.loads(line)["n"] for line in target.open()] == [n for n in range(NUM_ROWS) if n != 3]
    target = tmp_path / "out.csv"
    leave_unfinished(model, source, target, monkeypatch, num_blocks=3)
    source.write_text(rows[0].replace("{", '{"first": 1, ') + "".join(rows[1:]))  # another column
    assert predict_file(model, source, target).num_resumed == 0
    predict_file(model, source, tmp_path / "whole.csv")
    assert target.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_rows_before_a_bad_one_are_kept_and_the_mended_input_is_continued(
    model: LoadedModel, source: Path, tmp_path: Path
) -> None:
    rows = source.read_text().splitlines(keepends=True)
    source.write_text("".join(rows[:7]) + "{torn\n" + "".join(rows[8:]))
    target = tmp_path / "out.jsonl"
    with pytest.raises(DataError, match=r"in\.jsonl:8"):
        predict_file(model, source, target, num_threads=1)
    assert not target.exists()
    source.write_text("".join(rows))
    assert predict_file(model, source, target).num_resumed == 6
    assert [json.loads(line)["n"] for line in target.open()] == list(range(NUM_ROWS))


def test_a_complete_output_stays_until_the_new_one_is_complete(
    model: LoadedModel, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.jsonl"
    target.write_text("old\n")
    leave_unfinished(model, source, target, monkeypatch, num_blocks=2)
    assert target.read_text() == "old\n"
    assert predict_file(model, source, target).num_resumed == 4
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "out.jsonl"}
    assert len(target.read_bytes().splitlines()) == NUM_ROWS


def test_what_a_row_gets_does_not_depend_on_the_number_of_threads(
    model: LoadedModel, source: Path, tmp_path: Path
) -> None:
    for num_threads in (1, 3):
        predict_file(model, source, tmp_path / f"{num_threads}.csv", num_threads=num_threads)
    assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "3.csv").read_bytes()


def test_two_processes_do_not_write_one_output(model: LoadedModel, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    work = tmp_path / "out.jsonl.unfinished"
    work.mkdir()
    with (work / "lock").open("a") as another:
        lock_file(another)
        with pytest.raises(DataError, match="is being written by another process"):
            predict_file(model, source, target)
    assert predict_file(model, source, target).num_rows == NUM_ROWS
    assert {path.name for path in tmp_path.iterdir()} == {source.name, target.name}
