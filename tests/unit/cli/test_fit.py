"""bertline.fit: rows in memory, and what the command does with the same rows in files."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra

import bertline
from bertline.cli.finetune import _columns
from bertline.foundation.errors import BertlineError, ConfigError, DataError
from tiny import WORDS, write_encoder

QUICK: dict[str, Any] = {
    "seeds": 1, "max_length": 24, "workers": 1, "sweep.fine_tuning.num_epochs": 1, "learning_rate": 1e-3,
    "export.onnx": False, "export.int8": False,
    "export.measure_latency": False, "runtime.device": "cpu", "runtime.num_workers": 0, "runtime.num_threads": 1,
    "tracking.enabled": False, "threshold_metric": "f1",
}  # fmt: skip


def rows(number: int = 90) -> list[dict[str, Any]]:
    """Texts whose first word tells the label; three rows a group."""
    return [
        {"body": f"{WORDS[i % 2]} {WORDS[2 + i % 19]} {WORDS[21 + i % 17]}", "even": i % 2, "who": i // 3}
        for i in range(number)
    ]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_encoder(tmp_path / "start", max_position_embeddings=32)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_frames_datasets_and_lists_have_the_same_cells() -> None:
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    asked = {"text_column": "body", "label_column": "even", "group_column": "who"}
    expected = [(row["body"], row["even"], row["who"]) for row in rows(6)]
    frame = pandas.DataFrame(rows(6), index=list("abcdef"))
    for table in (rows(6), frame, datasets.Dataset.from_list(rows(6))):
        assert _columns("train", table, asked)[0] == expected
    assert list(_columns("train", frame, asked)[1]) == list("abcdef")
    both = {"text_column": "body", "label_columns[0]": "even", "label_columns[1]": "who"}
    assert _columns("train", rows(6), both)[0] == expected
    tags = datasets.List(datasets.ClassLabel(names=["O", "B-PER"]))
    of_words = datasets.Features({"tokens": datasets.List(datasets.Value("string")), "tags": tags})
    tagged = datasets.Dataset.from_list([{"tokens": ["Ada", "met"], "tags": [1, 0]}], features=of_words)
    words = _columns("train", tagged, {"text_column": "tokens", "label_column": "tags"})[0]
    assert words == [(["Ada", "met"], ["B-PER", "O"])]
    names = datasets.Features({"body": datasets.Value("string"), "even": datasets.ClassLabel(names=["yes", "no"])})
    named = datasets.Dataset.from_list([{"body": "a", "even": 1}, {"body": "b", "even": -1}], features=names)
    assert _columns("train", named, {"text_column": "body", "label_column": "even"})[0] == [("a", "no"), ("b", None)]


@pytest.mark.parametrize(
    ("place", "changes", "problem"),
    [
        (7, {"body": " "}, r"train, index r7: the text in column 'body' is empty"),
        (7, {"who": None}, r"train, index r7: the group in column 'who' \(group\) is empty"),
        (0, {"who": 25}, r"the group '25' \(group\) is in train \(train, index r0\) and in test \(test, index r75\)"),
    ],
)
def test_an_error_names_the_index_of_the_row(here: Path, place: int, changes: dict[str, Any], problem: str) -> None:
    pandas = pytest.importorskip("pandas")
    table = rows()
    table[place] |= changes
    frame = pandas.DataFrame(table, index=[f"r{number}" for number in range(90)]).astype({"who": "Int64"})
    with pytest.raises(DataError, match=problem):
        bertline.fit(frame[:75], test=frame[75:], text="body", label="even", group="who", start_from="start", **QUICK)


@pytest.mark.parametrize(("start", "problem"), [("no/such/folder", "does not exist"), ("half", "no model.safetensors")])
def test_a_wrong_start_is_found_before_rows_are_read(
    here: Path, monkeypatch: pytest.MonkeyPatch, start: str, problem: str
) -> None:
    (here / "half").mkdir()
    (here / "half" / "config.json").write_text((here / "start" / "config.json").read_text())
    monkeypatch.setattr("bertline.kinds.build.build_task", lambda *_, **__: pytest.fail("rows are read"))
    table: Any = ["no row"] if problem == "does not exist" else rows()
    with pytest.raises(BertlineError, match=problem):
        bertline.fit(table, text="body", label="even", start_from=start, **QUICK)


@pytest.mark.parametrize(
    ("row", "columns", "problem"),
    [
        ({"body": "Ada met", "marks": [(0, 3, "X"), (0, 7, "X")]}, {"text": "body", "label": "marks"}, "overlap"),
        ({"w": ["Ada"], "t": ["B-X", "O"]}, {"text": "w", "label": "t"}, "expected a tag for each"),
        ({"text": "a", "one": 1, "two": "x"}, {"label": ["one", "two"]}, r"column 'two' \(label\) is 'x'"),
    ],
)
def test_spans_tags_and_columns_of_labels_are_read_as_from_files(
    here: Path, row: dict[str, Any], columns: dict[str, Any], problem: str
) -> None:
    good = {"body": "Ada met", "marks": [(0, 3, "X")], "w": ["a"], "t": ["O"], "text": "b", "one": 0, "two": 1}
    quick = {key: value for key, value in QUICK.items() if key not in ("threshold_metric", "max_length")}
    with pytest.raises(DataError, match=rf"train, index 1: .*{problem}"):
        bertline.fit([good, {**good, **row}, good], **columns, start_from="start", **quick)


def test_a_path_is_what_data_names(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def task(composed: dict[str, Any]) -> None:
        ((name, settings),) = composed["tasks"].items()
        raise DataError(f"{name}, {settings['kind']}, {settings['source'].get('text_column')}")

    monkeypatch.setattr("bertline.cli.finetune.run_stages", task)
    (here / "library").mkdir()
    for name in ("corpus.jsonl", "queries.jsonl", "qrels.tsv"):
        (here / "library" / name).touch()
    for name, text in {"books.csv": "review", "read.csv": "body", "unread.csv": "body"}.items():
        (here / name).write_text(f"{text},label\nfine,1\npoor,0\n")
    quick = {key: value for key, value in QUICK.items() if key not in ("threshold_metric", "max_length")}
    with pytest.raises(DataError, match="^search, retrieval"):
        bertline.fit(here / "library", start_from="start", **quick)
    with pytest.raises(DataError, match="^books, classification, review"):
        bertline.fit("books.csv", start_from="start", **quick)
    with pytest.raises(DataError, match="^read, classification, body"):
        bertline.fit(Path("read.csv"), test="unread.csv", text="body", start_from="start", **quick)
    with pytest.raises(DataError, match=r"no\.csv, which is not a file"):
        bertline.fit("no.csv", start_from="start", **quick)


def test_what_cannot_be_read_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"train has no column 'text' \(text\)\. It has 'body', 'even', 'who'"):
        bertline.fit(rows(), label="even", start_from="start")
    with pytest.raises(DataError, match=r"train, index 0: 'a text' is no dictionary"):
        bertline.fit(["a text"])
    with pytest.raises(DataError, match=r"train has rows of Prodigy whose answer is not accept"):
        bertline.fit([{"text": "a", "spans": [], "answer": one} for one in ("accept", "ignore")], label="spans")
    with pytest.raises(ConfigError, match="max_lenght is no key of the configuration. Did you mean max_length"):
        bertline.fit(rows(), text="body", label="even", start_from="start", max_lenght=3)
    assert not GlobalHydra.instance().is_initialized()
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(ConfigError, match="__main__"):
        bertline.fit(rows(), text="body", label="even", start_from="start")
