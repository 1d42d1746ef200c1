"""Tables of every format and of every kind of damage."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertline.foundation.errors import DataError
from bertline.tasks.table_files import TableLayout, read_records

PLAIN = TableLayout(format="auto", header=True, quoting=True, encoding="utf-8-sig")
ROWS = [{"text": "a, b", "label": "x"}, {"text": "line\nbreak", "label": "y"}]


def layout(**changes):
    fields = {"format": "auto", "header": True, "quoting": True, "encoding": "utf-8-sig", **changes}
    return TableLayout(**fields)


@pytest.fixture
def tables(tmp_path):
    csv_text = 'text,label\n"a, b",x\n"line\nbreak",y\n'
    (tmp_path / "rows.csv").write_text(csv_text)
    (tmp_path / "rows.tsv").write_text('text\tlabel\na, b\tx\n"line\nbreak"\ty\n')
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(csv_text.encode()))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    return tmp_path


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.jsonl", "rows.csv.gz", "rows.parquet"])
def test_every_format_gives_the_same_rows(tables, name):
    assert [record.values for record in read_records(tables / name, PLAIN)] == ROWS


def test_a_record_knows_the_line_it_begins_on(tables):
    assert [record.where for record in read_records(tables / "rows.csv", PLAIN)] == ["rows.csv:2", "rows.csv:3"]


def test_columns_are_numbers_without_a_header(tmp_path):
    (tmp_path / "cola.tsv").write_text("gj04\t1\t\tThe sailors rode.\n")
    (record,) = read_records(tmp_path / "cola.tsv", layout(header=False))
    assert record.values == {0: "gj04", 1: "1", 2: "", 3: "The sailors rode."}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("header", [True, False])
def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path, encoding, header):
    (tmp_path / "rows.csv").write_bytes("\ufefftext,label\n".encode() + b"one,x\n")
    records = list(read_records(tmp_path / "rows.csv", layout(encoding=encoding, header=header)))
    assert next(iter(records[0].values.items())) == (("text", "one") if header else (0, "text"))


def test_a_byte_order_mark_before_json_is_no_part_of_the_data(tmp_path):
    (tmp_path / "rows.jsonl").write_bytes("\ufeff".encode() + b'{"text": "one"}\n')
    assert next(iter(read_records(tmp_path / "rows.jsonl", layout(encoding="utf-8")))).values == {"text": "one"}


def test_unbalanced_quotes_are_text_where_quoting_is_off(tmp_path):
    (tmp_path / "mrpc.tsv").write_text('a\tb\n"unbalanced\tplain\nsecond "\trow\n')
    records = list(read_records(tmp_path / "mrpc.tsv", layout(quoting=False)))
    assert [record.values for record in records] == [{"a": '"unbalanced', "b": "plain"}, {"a": 'second "', "b": "row"}]


def damaged(tmp_path, name, content, **changes):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as error:
        list(read_records(tmp_path / name, layout(**changes)))
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "line", "says"),
    [
        ("a.tsv", b'a\tb\n"open\tx\nnext\ty\n', 2, "source.quoting to false"),
        ("b.csv", b'a,b\n"x"y,z\n', 2, "source.quoting to false"),
        ("c.csv", b"a,b\n1,2\n1,2,3\n", 3, "3 fields, the header has 2"),
        ("d.csv", b"a,b\n1\n", 2, "1 fields, the header has 2"),
        ("e.csv", b"a,b\n1,2\n1,\xe9\n", 3, "not text in utf-8"),
        ("f.jsonl", b'{"a": 1}\n\n{"a": \n', 3, "not JSON"),
        ("g.jsonl", b'["a"]\n', 1, "JSON list"),
        ("h.csv", b"a,a\n1,2\n", 1, "'a' twice"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path, name, content, line, says):
    message = damaged(tmp_path, name, content)
    assert f"{name}:{line}" in message
    assert says in message


def test_latin_1_is_read_when_it_is_named(tmp_path):
    (tmp_path / "rows.csv").write_bytes("text\ncafé\n".encode("latin-1"))
    assert [record.values for record in read_records(tmp_path / "rows.csv", layout(encoding="latin-1"))] == [
        {"text": "café"}
    ]


def test_files_that_cannot_be_read_say_why(tmp_path):
    assert "csv, tsv, jsonl or parquet" in damaged(tmp_path, "rows.txt", b"")
    assert "gzip" in damaged(tmp_path, "rows.csv.gz", b"no gzip")
    assert "Parquet" in damaged(tmp_path, "rows.parquet", b"no parquet")
    assert "Python does not know" in damaged(tmp_path, "rows.csv", b"a\n", encoding="klingon")
    with pytest.raises(DataError, match="is not a file"):
        list(read_records(tmp_path / "none.csv", PLAIN))
