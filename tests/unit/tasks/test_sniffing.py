"""Formats that the name of a file does not say."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bertline.foundation.errors import DataError
from bertline.tasks.decoded_files import Guess, OptionNames, beginning_of, guesses
from bertline.tasks.table_source import TableLayout, read_records

LAYOUT = TableLayout("auto", header=True, quoting=True, encoding="utf-8", options=OptionNames(format="source.format"))
CONTENTS = {
    "jsonl": '{"text": "a, b", "label": "x"}\n\n{"text": "c", "label": "y"}\n',
    "csv": 'text,label\n"a, b",x\nc,y\n',
    "tsv": "text\tlabel\na, b\tx\nc, d, e\ty\n",
}


@pytest.mark.parametrize("name", ["rows.txt", "rows.data", "rows", "rows.data.gz"])
@pytest.mark.parametrize("kind", CONTENTS)
def test_content_says_the_format_where_the_name_does_not(tmp_path: Path, kind: str, name: str) -> None:
    data = CONTENTS[kind].encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    rows = [record.values for record in read_records(tmp_path / name, LAYOUT)]
    assert rows[0] == {"text": "a, b", "label": "x"}
    assert len(rows) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb,c\nd\te,f\n", r"its lines can be tsv or csv\. Set source\.format to csv, tsv"),
        ("one text\nanother\n", "neither JSON objects nor have they as many fields"),
        ("EU B-ORG\nrejects O\n\nGerman B-MISC\n", "look like CoNLL.*source.kind: conll"),
        ("", "neither"),
    ],
)
def test_doubt_is_an_error_that_says_what_to_set(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "rows.txt").write_text(content)
    with pytest.raises(DataError, match=message):
        list(read_records(tmp_path / "rows.txt", LAYOUT))


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0c", "\x1c", "\v"])
@pytest.mark.parametrize(
    ("template", "kind"),
    [
        ("text\tlabel\none{}two\tx\n", "tsv"),
        ("text,label\r\none{}two,x\r\n", "csv"),
        ("text,label\rone{}two,x\r", "csv"),
        ("one{}two\tB-X\nmore\tO\n\n", "conll"),
    ],
)
def test_rare_separators_inside_fields_end_no_line(tmp_path: Path, template: str, kind: Guess, separator: str) -> None:
    (tmp_path / "a").write_bytes(template.format(separator).encode())
    assert guesses(beginning_of(tmp_path / "a", "utf-8")) == [kind]
