"""Predicting over files: formats in and out, errors by line, nothing half-written, memory."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import finetuning_inputs
from bertline.corpus.tables import TableRow
from bertline.foundation.bad_rows import BadRows
from bertline.foundation.errors import ArtifactError, DataError, MachineError
from bertline.inference.loading import load_folder
from bertline.inference.model import LoadedModel
from bertline.inference.predict import FileColumns, predict_file
from bertline.inference.pyfunc import ServedModel, ServingSettings
from bertline.inference.row_files import PLAIN_LAYOUT, RowsOutput, widened_schema
from bertline.tasks.table_source import table_rows

TEXTS = ["the cat sat", "a mat, a dog", "on the mat\nthe cat"]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    opener = gzip.open if path.suffix == ".gz" else open
    kind = path.name.removesuffix(".gz").rsplit(".")[-1]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
        return
    with opener(path, "wt", newline="", encoding="utf-8") as handle:
        if kind == "jsonl":
            handle.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(handle, list(rows[0]), delimiter="," if kind == "csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)


def read(path: Path) -> list[dict[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    kind = path.name.removesuffix(".gz").rsplit(".")[-1]
    if kind == "parquet":
        return pq.read_table(path).to_pylist()
    with opener(path, "rt", newline="", encoding="utf-8") as handle:
        if kind == "jsonl":
            return [json.loads(line) for line in handle]
        return list(csv.DictReader(handle, delimiter="," if kind == "csv" else "\t"))


FORMATS = ("csv", "tsv.gz", "jsonl", "jsonl.gz", "parquet")


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", FORMATS)
def test_every_format_goes_into_every_other(model: LoadedModel, tmp_path: Path, source: str, target: str) -> None:
    rows = [{"number": str(i), "text": text} for i, text in enumerate(TEXTS)]
    write(tmp_path / f"in.{source}", rows)
    done = predict_file(model, tmp_path / f"in.{source}", tmp_path / f"out.{target}")
    found = read(tmp_path / f"out.{target}")
    assert done.num_rows == 3
    assert [{key: row[key] for key in ("number", "text")} for row in found] == rows
    for row, expected in zip(found, model.predict(TEXTS), strict=True):
        assert row["predicted"] == expected.label
        assert float(row["probability"]) == pytest.approx(expected.probability, abs=1e-5)


@pytest.mark.parametrize("column", [0, "0"])
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_column_may_be_named_by_a_number(model: LoadedModel, tmp_path: Path, kind: str, column: str | int) -> None:
    write(tmp_path / f"in.{kind}", [{"1": "other", "0": text} for text in TEXTS])
    predict_file(model, tmp_path / f"in.{kind}", tmp_path / "out.jsonl", columns=FileColumns(text=column))
    assert [row["predicted"] for row in read(tmp_path / "out.jsonl")] == [one.label for one in model.predict(TEXTS)]


def test_a_cell_is_read_as_training_reads_it(open_task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, classifier = open_task("windows")
    values = (" word1\n", 1984, 1984.0, "\u3000word2 word3")
    write(tmp_path / "in.jsonl", [{"text": value, "label": "a"} for value in values])
    source = finetuning_inputs.table_source(path=str(tmp_path / "in.jsonl"))
    rows = table_rows(source, lambda *settings: str, BadRows("error"))["train"]
    encoded: list[str] = []
    kind, encode = type(classifier.task.kind), type(classifier.task.kind).encode

    def recorded(self: Any, rows: Any, tokenizer: Any) -> Any:
        encoded.extend(rows.texts)
        return encode(self, rows, tokenizer)

    monkeypatch.setattr(kind, "encode", recorded)
    predict_file(classifier, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    ServedModel(classifier, ServingSettings()).predict(pd.DataFrame({"text": values}, dtype=object))
    assert encoded == 2 * [row.text for row in rows] == 2 * ["word1", "1984", "1984", "word2 word3"]
    assert [row["text"] for row in read(tmp_path / "out.jsonl")] == [*values]


@pytest.mark.parametrize(
    ("name", "content", "changes", "column"),
    [
        ("cola.tsv", b'x\t1\t*\t"the cat\nx\t0\t\ta mat, a "dog\n', {"header": False, "quoting": False}, 3),
        ("trec.txt", b'NUM:dist "the cat\nNUM:other a mat, a "dog\n', {
            "format": "tsv", "header": False, "quoting": False, "separator": " ", "max_fields": 2,
            "encoding": "latin-1",
        }, 1),
    ],
)  # fmt: skip
def test_a_file_is_read_by_the_layout_that_a_task_reads_it_by(
    model: LoadedModel, tmp_path: Path, name: str, content: bytes, changes: dict[str, Any], column: str | int
) -> None:
    (tmp_path / name).write_bytes(content)
    layout = dataclasses.replace(PLAIN_LAYOUT, **changes)
    predict_file(model, tmp_path / name, tmp_path / "out.jsonl", columns=FileColumns(text=column), layout=layout)
    found = read(tmp_path / "out.jsonl")
    texts = ['"the cat', 'a mat, a "dog']
    assert [row[str(column)] for row in found] == texts
    assert [row["predicted"] for row in found] == [each.label for each in model.predict(texts)]


def test_types_of_a_parquet_file_stay(model: LoadedModel, tmp_path: Path) -> None:
    when, number = pa.array([1, None, 3], pa.timestamp("us")), pa.array([1, 2, 3], "int8")
    table = pa.table({"text": TEXTS, "when": when, "n": number})
    pq.write_table(table, tmp_path / "in.parquet")
    predict_file(model, tmp_path / "in.parquet", tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.column_names == ["text", "when", "n", "predicted", "probability", "probabilities"]
    assert found.select([0, 1, 2]).equals(table)


BAD_INPUTS = {
    "undecodable text": ("in.txt", b"the cat\nthe \xff\n", r"in\.txt:2: byte 0xff at character 5"),
    "missing column": ("in.jsonl", b'{"text": "a"}\n{"body": "a"}\n', r"in\.jsonl:2: no column 'text'; found body"),
    "null text": ("in.jsonl", b'{"text": "a"}\n\n{"text": null}\n', r"in\.jsonl:3: column 'text' is None"),
    "empty text": ("in.txt", b"", "has no rows"),
    "header alone": ("in.csv", b"text\n", "has no rows"),
    "half a character": ("in.jsonl", b'{"text": "a"}\n{"text": "a", "n": "\\ud800"}\n', r"in\.jsonl:2: .*half of"),
    "taken column": ("in.csv", b"text,predicted\na,b\n", "already has a column 'predicted'"),
    "unknown ending": ("in.docx", b"the cat", "the ending says no format"),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input_is_named_and_leaves_no_output(model: LoadedModel, tmp_path: Path, case: str) -> None:
    name, content, message = BAD_INPUTS[case]
    (tmp_path / name).write_bytes(content)
    for target in ("out.jsonl", "out.parquet"):
        with pytest.raises(DataError, match=message):
            predict_file(model, tmp_path / name, tmp_path / target)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_impossible_outputs_are_refused(model: LoadedModel, encoder_folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("the cat\n")
    with pytest.raises(DataError, match=r"cannot be written as \.txt"):
        predict_file(model, source, tmp_path / "out.txt")
    with pytest.raises(MachineError, match="cannot be written"):
        predict_file(model, source, source / "out.jsonl")
    with pytest.raises(ArtifactError, match="cannot classify"):
        predict_file(load_folder(str(encoder_folder)), source, tmp_path / "out.jsonl")
    write(tmp_path / "in.jsonl", [{"text": "a"}])
    with pytest.raises(DataError, match="is the input itself"):
        predict_file(model, tmp_path / "in.jsonl", tmp_path / "in.jsonl")


def test_columns_and_types_of_a_parquet_file_are_those_of_all_rows(model: LoadedModel, tmp_path: Path) -> None:
    first: list[dict[str, Any]] = [{"text": "a", "n": n, "o": {"a": n}, "l": [], "x": None} for n in range(512)]
    last = {"text": "b", "n": 2.75, "o": {"a": 0.5, "b": [{"c": True}]}, "l": [1, 2.5], "x": "y", "new": -1}
    write(tmp_path / "in.jsonl", [*first, last, {"text": "c"}])
    predict_file(model, tmp_path / "in.jsonl", tmp_path / "out.parquet")
    predict_file(model, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    found = read(tmp_path / "out.parquet")
    assert found[512].items() >= last.items()
    assert found[7].items() >= {"n": 7, "o": {"a": 7, "b": None}, "l": [], "x": None, "new": None}.items()
    assert {name: found[513][name] for name in ("n", "o", "new")} == {"n": None, "o": None, "new": None}
    assert [row["probabilities"] for row in found] == [row["probabilities"] for row in read(tmp_path / "out.jsonl")]


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 65), 1 << 65)
    | st.integers(-9, 9)
    | st.floats()
    | st.text("aé=\n\r"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=4,
)


def is_same(value: Any, found: Any) -> bool:
    """Whether the value was not changed: a whole number may be one of a column of fractions, a key may be null."""
    match value:
        case dict():
            return all(is_same(value.get(key), found[key]) for key in {*value, *found})
        case list():
            return len(value) == len(found) and all(map(is_same, value, found))
        case bool() | None:
            return found is value
        case int():
            return found == value and not isinstance(found, bool)
        case _:
            return type(found) is type(value) and (found == value or value != value)


@given(rows=st.lists(st.dictionaries(st.sampled_from(["x", "y"]), JSON_VALUES, min_size=1), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_value_is_written_as_it_is_or_named(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "block.parquet"
    records = [TableRow(f"in.jsonl:{number}", {**row}) for number, row in enumerate(rows, start=1)]
    try:
        schema = widened_schema([record] for record in records)
        output = RowsOutput(path, tuple(schema.names), schema, escapes_formulas=False)
        output.write([output.encoded(rows, records)])
    except DataError as error:
        assert re.match(r"in.jsonl:\d+: column|.*block.parquet: Cannot write struct type", str(error))
    else:
        assert all(map(is_same, rows, read(path)))


@pytest.mark.parametrize("target", ["out.csv", "out.tsv"])
def test_texts_that_a_spreadsheet_would_compute_are_quoted_where_asked(
    model: LoadedModel, tmp_path: Path, target: str
) -> None:
    texts = ["=1+1", "+a", "-a", "@a", "\t=a", "a=b", "'=a", ""]
    write(tmp_path / "in.jsonl", [{"text": text, "=n": -1, "l": ["=a"]} for text in texts])
    predict_file(model, tmp_path / "in.jsonl", tmp_path / target)
    assert [row["text"] for row in read(tmp_path / target)] == texts
    predict_file(model, tmp_path / "in.jsonl", tmp_path / target, escape_formulas=True)
    found = read(tmp_path / target)
    assert [row["text"] for row in found] == ["'=1+1", "'+a", "'-a", "'@a", "'\t=a", "a=b", "'=a", ""]
    assert {(row["'=n"], row["l"]) for row in found} == {("-1", '["=a"]')}


@pytest.mark.parametrize(
    ("source", "target", "last", "message"),
    [
        ("in.jsonl", "out.csv", {"text": "a", "m": 1}, "in.jsonl:513: column 'm' is not among those of the first row"),
        ("in.jsonl", "out.parquet", {"text": "a", "n": "x"}, "in.jsonl:513: column 'n' is 'x'.* int64 vs string"),
        ("in.parquet", "out.jsonl", {"text": "a", "n": None, "b": b"\xff"}, "in.parquet:513: column 'b' is .*xff"),
    ],
)
def test_what_the_format_cannot_hold_is_named_and_not_changed(
    model: LoadedModel, tmp_path: Path, source: str, target: str, last: dict[str, Any], message: str
) -> None:
    empty = {"b": None} if "b" in last else {}
    write(tmp_path / source, [*({"text": "a", "n": n, **empty} for n in range(512)), last])
    with pytest.raises(DataError, match=message):
        predict_file(model, tmp_path / source, tmp_path / target)
    other = tmp_path / ("out.jsonl" if source == "in.jsonl" else "out.parquet")
    predict_file(model, tmp_path / source, other)
    assert read(other)[-1].items() >= last.items()
