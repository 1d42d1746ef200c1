"""What a label column may hold, and what is said of the rest."""

from __future__ import annotations

import csv
import gzip
import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bertline.corpus.tables import TableLayout, read_records
from bertline.foundation.bad_rows import BadRow, BadRows
from bertline.foundation.errors import DataError
from bertline.tasks.table_source import ANumber, OneLabel, SeveralLabels, table_rows
from shipped_tasks import shipped

ROWS = [{"text": "a, b", "label": "x"}, {"text": "line\nbreak", "label": "y"}]


def layout(**changes):
    return TableLayout(**{"format": "auto", "header": True, "quoting": True, "encoding": "utf-8-sig", **changes})


@pytest.fixture
def tables(tmp_path):
    csv_text = 'text,label\n"a, b",x\n"line\nbreak",y\n'
    (tmp_path / "rows.csv").write_text(csv_text)
    (tmp_path / "rows.tsv").write_text('text\tlabel\na, b\tx\n"line\nbreak"\ty\n')
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(csv_text.encode()))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    (tmp_path / "rows.json").write_text(f"\ufeff\n{json.dumps(ROWS, indent=2)}\n")
    (tmp_path / "lines.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "object.json").write_text(json.dumps({"schema": {}, "data": ROWS}))
    (tmp_path / "rows.json.gz").write_bytes(gzip.compress(json.dumps(ROWS).encode()))
    return tmp_path


TABLES = ["rows.csv", "rows.tsv", "rows.jsonl", "rows.csv.gz", "rows.parquet", "rows.json", "lines.json"]


@pytest.mark.parametrize("name", [*TABLES, "object.json", "rows.json.gz"])
def test_every_format_gives_the_same_rows(tables, name):
    assert [record.values for record in read_records(tables / name, layout())] == ROWS


def test_the_first_sheet_of_an_excel_file_is_a_table(tmp_path):
    rows = [{"text": "NA", "label": 3, "flag": True}, {"text": "b", "label": 1.5, "flag": ""}]
    with pd.ExcelWriter(tmp_path / "a.xlsx") as writer:
        pd.DataFrame(rows).to_excel(writer, sheet_name="one", index=False)
        pd.DataFrame([{"other": 1}]).to_excel(writer, sheet_name="two", index=False)
    records = list(read_records(tmp_path / "a.xlsx", layout()))
    assert [record.values for record in records] == rows and [record.line for record in records] == ["2", "3"]
    assert [*next(read_records(tmp_path / "a.xlsx", layout(header=False))).values] == [0, 1, 2]
    assert "cannot be read as .xlsx" in damaged(tmp_path, "b.xlsx", b"no archive")


@pytest.mark.parametrize("reader", [OneLabel, SeveralLabels])
def test_numbers_of_classes_that_a_parquet_file_names_are_labels_by_name(tmp_path, reader):
    features = {"text": {"_type": "Value"}, "label": {"names": ["no", "yes"], "_type": "ClassLabel"}}
    table = pa.table({"text": ["a", "b"], "label": [1, 0]})
    described = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(described, tmp_path / "a.parquet")
    config = shipped("table", tmp_path / "a.parquet").source
    labels = [row.label for row in table_rows(config, reader, BadRows("error"))["train"]]
    assert labels == (["yes", "no"] if reader is OneLabel else [("yes",), ("no",)])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("header", [True, False])
def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path, encoding, header):
    (tmp_path / "rows.csv").write_bytes("\ufefftext,label\n".encode() + b"one,x\n")
    records = list(read_records(tmp_path / "rows.csv", layout(encoding=encoding, header=header)))
    assert next(iter(records[0].values.items())) == (("text", "one") if header else (0, "text"))


def damaged(tmp_path, name, content, **changes):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as error:
        list(read_records(tmp_path / name, layout(**changes)))
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "line", "says"),
    [
        ("a.tsv", b'a\tb\n"open\tx\nnext\ty\n', 2, "quoting to false"),
        ("b.csv", b'a,b\n"x"y,z\n', 2, "quoting to false"),
        ("c.csv", b"a,b\n1,2\n1,2,3\n", 3, "3 fields, the header (a, b) has 2"),
        ("d.csv", b"a,b\n1\n", 2, "1 fields, the header (a, b) has 2"),
        ("e.csv", b"a,b\n1,2\n1,\xe9\n", 3, "byte 0xe9 at character 3 is not utf-8 text"),
        ("f.jsonl", b'{"a": 1}\n\n{"a": \n', 3, "not JSON"),
        ("g.jsonl", b'{}\n["a"]\n', 2, "JSON list"),
        ("i.json", b'[{"a": 1},\n{"a": 2}', 2, "Is it whole?"),
        ("j.json", b'[{"a": 1}, 3]', 2, "JSON int"),
        ("h.csv", b"a,a\n1,2\n", 1, "'a' twice"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path, name, content, line, says):
    message = damaged(tmp_path, name, content)
    assert f"{name}:{line}" in message
    assert says in message


def test_files_that_cannot_be_read_say_why(tmp_path):
    assert "csv, tsv, jsonl, json, xlsx, parquet" in damaged(tmp_path, "rows.txt", b"")
    assert "the gzip data is torn" in damaged(tmp_path, "rows.csv.gz", gzip.compress(b"a,b\n" * 99)[:-9])
    assert "Parquet" in damaged(tmp_path, "rows.parquet", b"no parquet")
    assert "Python does not know" in damaged(tmp_path, "rows.csv", b"a\n", encoding="klingon")
    with pytest.raises(DataError, match="is not a file"):
        list(read_records(tmp_path / "none.csv", layout()))


def values_of(tmp_path, name, content, bad_rows=None, **changes):
    (tmp_path / name).write_bytes(content)
    return [list(record.values.values()) for record in read_records(tmp_path / name, layout(**changes), bad_rows)]


# A quote opens in line 3 and finds its partner, an inch mark, in line 5: csv would read one row of the right width.
SWALLOWING = b'a\tb\tc\n1\tplain\tx\n2\t"open\tx\n3\tmore\ty\n4\t6 feet, 5"\tz\n5\tlast\tx\n'


@pytest.mark.parametrize("other", [b'6\tis 6" long\ty\n', b"6\ty\n", b'6\t"open\ty\n', b'6\t"a" b\ty\n'])
def test_a_quote_that_swallows_rows_is_never_skipped_where_other_rows_are_not_well_formed(tmp_path, other):
    (tmp_path / "a.tsv").write_bytes(SWALLOWING + other)
    with pytest.raises(DataError, match=r"a\.tsv:3: a quote opens"):
        list(read_records(tmp_path / "a.tsv", layout(), BadRows("skip")))
    # Here the closing quote stands in another column, so the row has too many fields.
    (tmp_path / "b.tsv").write_bytes(b'a\tb\n"open\tx\nnext"\ty\tz\n')
    with pytest.raises(DataError, match=r"b\.tsv:2: 3 fields"):
        list(read_records(tmp_path / "b.tsv", layout(), BadRows("skip")))


CELLS = st.lists(st.sampled_from(['"', ",", "\n", "\r\n", ",x\n", "a", " ", "\t", "é"]), max_size=8).map("".join)


@settings(max_examples=25, deadline=None)
@example(rows=[("1,5 kg\n2 kg", "y")], how=csv.QUOTE_MINIMAL, ending="\n")
@example(rows=[('"\n,"\n\n,', "y"), ('""', "")], how=csv.QUOTE_ALL, ending="\r\n")
@given(
    rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6),
    how=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    ending=st.sampled_from(["\n", "\r\n"]),
)
def test_what_writers_of_csv_write_is_read_as_it_was(tmp_path_factory, rows, how, ending):
    folder = tmp_path_factory.getbasetemp()
    frame = pd.DataFrame(rows, columns=["text", "label"])
    for separator, name in ((",", "by_writers.csv"), ("\t", "by_writers.tsv")):
        frame.to_csv(folder / name, sep=separator, quoting=how, lineterminator=ending, index=False)
        by_pandas = [tuple(record.values.values()) for record in read_records(folder / name, layout())]
        with (folder / name).open("w", encoding="utf-8", newline="") as handle:
            csv.writer(handle, delimiter=separator, quoting=how, lineterminator=ending).writerows(
                [("text", "label"), *rows]
            )
        assert by_pandas == [tuple(record.values.values()) for record in read_records(folder / name, layout())] == rows


@pytest.mark.parametrize(
    "half", ['"\\ud800 x"', '["x", {"y": "\\udfff"}]', '{"\\uDBff": 1}'], ids=["text", "deep", "key"]
)
def test_half_a_character_is_named_with_its_line_or_counted(tmp_path, half):
    content = ('{"text": "\\ud83d\\ude00"}\n{"text": "one", "more": ' + half + "}\n").encode()
    assert "a.jsonl:2: it has '\\ud" in damaged(tmp_path, "a.jsonl", content)
    bad_rows = BadRows("skip")
    # A character that is written in two halves is a character.
    assert values_of(tmp_path, "a.jsonl", content, bad_rows) == [["\U0001f600"]]
    assert bad_rows.dropped == {"half_character": 1}


COARSE = re.compile(r"^(\w+):")


@pytest.mark.parametrize(
    ("value", "label"),
    [
        ("good ", "good"), (1, "1"), (1.0, "1"), ("1.0", "1"), (1.5, "1.5"), ("1.50", "1.50"), ("3.10", "3.10"),
        (True, "true"), ("True", "true"), ("FALSE", "false"), ("truth", "truth"), (np.int64(2), "2"),
        (np.float32(2), "2"), ("été", "été"), ("v1.0", "v1.0"), ("007", "007"),
    ],
)  # fmt: skip
def test_one_label_is_a_word(value, label):
    assert OneLabel(None, None, None)(value) == label


@pytest.mark.parametrize(
    ("value", "labels"),
    [
        ("a|b", ("a", "b")), ("b | a |b|", ("b", "a")), ("", ()), (None, ()), ([], ()), (float("nan"), ()),
        (["x", " y ", "x", None], ("x", "y")), ([1, "1.0", "True"], ("1", "true")), ("1|1.0|2", ("1", "2")),
        (np.array(["x", "y"]), ("x", "y")), ([1, 2.0], ("1", "2")), ("(see b)", ("(see b)",)), ("[a]|b", ("[a]", "b")),
        ("['a', 'b']", ("a", "b")), ('["a|b"]', ("a|b",)), ("[]", ()),
    ],
)  # fmt: skip
def test_several_labels_are_a_list_or_words_between_separators(value, labels):
    assert SeveralLabels(None, "|", None)(value) == labels


@pytest.mark.parametrize(
    ("labels", "value", "reason", "says"),
    [
        *(
            (OneLabel(None, None, None), none, "empty_label", "the label is empty")
            for none in (" ", None, float("nan"))
        ),
        (OneLabel(None, None, None), ["a"], "several_labels", "multi_label=true"),
        (OneLabel(None, None, None), {"a": 1}, "unknown_label", "expected a word"),
        (OneLabel(None, None, ["no", "yes"]), -1, "unknown_label", "set it to null"),
        (OneLabel(COARSE, None, None), "NUM", "label_without_pattern", "source.label_pattern"),
        (SeveralLabels(COARSE, " ", None), "NUM:dist LOC", "label_without_pattern", "'LOC'"),
        *(
            (SeveralLabels(None, ",", None), cell, "wrong_type", "no list of names")
            for cell in (3, np.True_, [0, 1, 0], [0.2, 0.7], np.array([1.0, 0.0, 1.0]), "[a, b]", "['a' 'b']")
        ),
        *(
            (labels(None, None, None), cell, "unknown_label", "expected a word or a number")
            for labels in (OneLabel, SeveralLabels)
            for cell in ([["a", "b"], ["c"]], [[0, 5, "PER"]], [{"start": 0, "label": "PER"}])
        ),
        (ANumber(0, 5), "", "empty_label", "the number is empty"),
        *((ANumber(0, 5), word, "not_a_number", "no number") for word in ("high", "nan", True, "4,5")),
        (ANumber(0, 5), "5.01", "number_outside_the_scale", "from 0 to 5"),
        (ANumber(1, 5), "inf", "number_outside_the_scale", "from 1 to 5"),
    ],
)
def test_what_is_no_label_says_why(labels, value, reason, says):
    with pytest.raises(BadRow) as error:
        labels(value)
    assert error.value.reason == reason and says in f"{error.value}. {error.value.advice}"
    assert "token_classification" in error.value.advice or "PER" not in str(value), "spans are told where they belong"


def test_the_first_ten_bad_rows_are_named_with_their_number_and_each_advice_once():
    bad_rows = BadRows("error")
    for line in range(1, 1235):
        bad_rows.report("empty_text", f"a.csv:{line}: empty.", "Fix it." if line % 2 else "Fill it.")
    with pytest.raises(DataError) as error:
        bad_rows.end()
    first, *named, last = str(error.value).splitlines()
    assert first == "1,234 rows are invalid; the first 10:"
    assert named == [f"a.csv:{line}: empty." for line in range(1, 11)]
    assert last == "Fix it. Fill it. (source.on_bad_row=skip leaves such rows out and counts them.)"
    BadRows("error").end()


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_all_bad_rows_of_a_file_are_named_and_no_row_behind_the_first_is_handed_out(tmp_path, name):
    lines = ["a,b", "1,2", "1", "3,4", "5,6,7", "8,9"] if name == "a.csv" else ["{}", "x", "{}", "[1]", "{}"]
    (tmp_path / name).write_text("\n".join(lines))
    records = read_records(tmp_path / name, layout())
    next(records)
    with pytest.raises(DataError, match=rf"2 rows are invalid:\n.*{name}:[23].*\n.*{name}:[45]"):
        next(records)
