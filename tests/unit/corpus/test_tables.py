from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict

from bertline.corpus.document import Dropped
from bertline.corpus.sentences.learned import LearnedConfig
from bertline.foundation.errors import DataError
from reading import HubCorpusConfig, TableCorpusConfig, read

Make = Callable[..., TableCorpusConfig]


def hub_config(name: str, **changes: object) -> HubCorpusConfig:
    fields: dict = {"text_column": "text", "group_column": None, "subset": None, "split": "train"}
    fields |= {
        "validation_fraction": 0.1, "split_seed": 0, "deduplicate": "none", "min_document_characters": 1,
        "on_undecodable": "fail", "sentences": LearnedConfig(kind="learned", abbreviations=()),
    }  # fmt: skip
    return HubCorpusConfig(kind="hub", name=name, **fields | changes)


def test_jsonl_rows_are_documents_with_their_line(folder: Path, table_config: Make) -> None:
    rows = '{"text": "One.\\n\\nTwo.", "from": 1}\n\n{"text": "Three.", "from": {"a": [2]}}\n{"text": null}\n'
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    dropped: Counter[str] = Counter()

    found = list(read(table_config("jsonl"), dropped))

    assert [(item.id, item.paragraphs) for item in found] == [
        ("a.jsonl.gz:1", ("One.", "Two.")),
        ("a.jsonl.gz:3", ("Three.",)),
    ]
    assert dropped["documents/no_text"] == 1


def test_csv_cells_may_hold_lines_delimiters_and_words_that_look_like_nothing(folder: Path, table_config: Make) -> None:
    (folder / "a.csv").write_text('id,text,site\n1,"One,\nand ""two"".",x\n2,NA,y\n3,,x\n')

    found = list(read(table_config("csv", group_column="site")))

    assert [(item.id, item.group, item.paragraphs) for item in found] == [
        ("a.csv:2", "site=x", ('One,\nand "two".',)),
        ("a.csv:4", "site=y", ("NA",)),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,text,text\n1,a,b\n", r"a.csv:1: the header names 'text' twice"),
        ("id, text , text\n1,a,b\n", r"a.csv:1: the header names 'text' twice"),
        ('id,text\n1,fine\n2,"swallows\n3,all\n4,of, these\n5,"x,y"\n6,b"\n', r"a.csv:3: .*set quoting to false"),
        ('id,text\n1,"over\ntwo",3\n', r"a.csv:2: 3 fields, .*in a row over 2 lines"),
    ],
)
@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_damage_that_would_lose_rows_in_silence_is_an_error_however_bad_rows_are_handled(
    folder: Path, table_config: Make, content: str, message: str, policy: str
) -> None:
    (folder / "a.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        list(read(table_config("csv", on_undecodable=policy)))


def test_separator_and_quoting_can_be_set_and_names_may_have_spaces(folder: Path, table_config: Make) -> None:
    (folder / "a.csv").write_text('id ; text\n1;5" of rain, and\n2;snow"\n')
    found = read(table_config("csv", separator=";", quoting=False))
    assert [item.paragraphs for item in found] == [('5" of rain, and',), ('snow"',)]
    for changes in ({"separator": "::"}, {"separator": ";", "kind": "jsonl"}, {"quoting": False, "kind": "parquet"}):
        kind = str(changes.pop("kind", "csv"))
        with pytest.raises(ValueError, match="separator"):
            table_config(kind, **changes)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "txt"])
def test_the_first_ten_bad_records_of_a_shard_are_named_with_their_number_and_one_advice(
    folder: Path, table_config: Make, text_config: Make, kind: str
) -> None:
    fine, bad = {"jsonl": (b'{"text": "fine"}', b"{"), "csv": (b"1,fine", b"1"), "txt": (b"fine", b"caf\xe9")}[kind]
    head = [b"id,text"] if kind == "csv" else []
    for name in ("a", "b"):
        (folder / f"{name}.{kind}").write_bytes(b"\n".join([*head, *[fine, bad] * 6, fine]))
    config = text_config(document="line") if kind == "txt" else table_config(kind)
    with pytest.raises(DataError) as raised:
        list(read(config))
    first, *places, advice = str(raised.value).splitlines()
    assert first == "12 rows are invalid; the first 10:"
    lines = [f"{folder / name}.{kind}:{2 * number + len(head)}: " for name in ("a", "b") for number in range(1, 7)]
    assert all(place.startswith(line) for place, line in zip(places, lines[:10], strict=True))
    assert "corpus.on_undecodable=skip" in advice and "corpus.on_undecodable=skip" not in "".join(places)
    (folder / f"b.{kind}").unlink()
    (folder / f"a.{kind}").write_bytes(b"\n".join([*head, fine]))
    assert len(list(read(config))) == 1


def test_a_dataset_names_all_bad_rows(tmp_path: Path) -> None:
    Dataset.from_list([{"text": 1}, {"text": 2}]).save_to_disk(tmp_path / "saved")
    with pytest.raises(DataError, match=r"2 rows are invalid:\n.*, row 1: column 'text'.*\n.*, row 2: "):
        list(read(hub_config(str(tmp_path / "saved"))))


@pytest.mark.parametrize(
    ("kind", "bad", "reason"),
    [
        ("jsonl", '{"text": "torn', "not_json"),
        ("jsonl", "[" * 100_000, "not_json"),
        ("jsonl", '["text"]', "not_json"),
        ("jsonl", '{"text": 5}', "not_text"),
        ("jsonl", '{"body": "x"}', "no_column"),
        ("jsonl", '{"text": NaN}', "no_text"),
        ("csv", "a,b,c", "wrong_width"),
        ("jsonl", '{"text": "\udcff"}', "undecodable"),
        ("csv", "1,\udcff", "undecodable"),
    ],
)
def test_a_row_that_cannot_be_used_is_left_out_alone_and_counted_with_its_line(
    folder: Path, table_config: Make, kind: str, bad: str, reason: str
) -> None:
    fine = '{"text": "fine"}' if kind == "jsonl" else "1,fine"
    head = "" if kind == "jsonl" else "id,text\n"
    content = f"{head}{fine}\n{bad}\n{fine}\n".encode(errors="surrogateescape")
    (folder / f"a.{kind}").write_bytes(content)
    dropped: list[Dropped] = []
    assert len(list(read(table_config(kind, on_undecodable="skip"), dropped))) == 2
    line = 2 + bool(head)
    assert [one[:2] for one in dropped] == [(f"documents/{reason}", f"a.{kind}:{line}")]
    if reason != "no_text":
        with pytest.raises(DataError, match=rf"a.{kind}:{line}: .*corpus.on_undecodable=skip"):
            list(read(table_config(kind)))


def test_a_json_array_is_read_and_one_with_undecodable_bytes_is_left_out_and_counted(
    folder: Path, table_config: Make
) -> None:
    (folder / "a.json").write_bytes(b'[{"text": "Kept."}]')
    (folder / "b.json").write_bytes(b'[{"text": "Kept."}, {"text": "\xff"}]')
    dropped: Counter[str] = Counter()
    found = read(table_config("jsonl", on_undecodable="skip"), dropped)
    assert [(one.id, one.paragraphs[0]) for one in found] == [("a.json:1", "Kept.")]
    assert dropped["files/undecodable"] == 1


def test_parquet_rows_are_documents(folder: Path, table_config: Make) -> None:
    columns = {"text": ["One.", None, "Three."], "site": ["x", "y", None], "n": [1, 2, 3]}
    pq.write_table(pa.table(columns), folder / "a.parquet")
    dropped: Counter[str] = Counter()

    found = list(read(table_config("parquet", group_column="site"), dropped))

    assert [(item.id, item.group) for item in found] == [("a.parquet:1", "site=x"), ("a.parquet:3", "")]
    assert dropped["documents/no_text"] == 1
    with pytest.raises(DataError, match=r"a.parquet:1: no column 'body'.*Columns here: text, site, n"):
        list(read(table_config("parquet", text_column="body")))
    with pytest.raises(DataError, match=r"a.parquet:1: column 'n'.*holds int"):
        list(read(table_config("parquet", text_column="n")))


@pytest.mark.parametrize("form", ["parquet", "save_to_disk", "dataset_dict"])
def test_a_dataset_is_read_from_a_folder_however_it_was_saved(folder: Path, form: str) -> None:
    data = Dataset.from_dict({"text": [f"Text {number}." for number in range(10)]})
    if form == "parquet":
        data.to_parquet(folder / "train-00000-of-00001.parquet")
    else:
        (data if form == "save_to_disk" else DatasetDict(train=data)).save_to_disk(folder / "saved")
        folder = folder / "saved"
    whole = list(read(hub_config(str(folder))))
    assert [(item.id, item.paragraphs) for item in whole[:2]] == [("train:1", ("Text 0.",)), ("train:2", ("Text 1.",))]
    in_ranges = list(read(hub_config(str(folder)), shard_bytes=40))
    assert [item.paragraphs for item in in_ranges] == [item.paragraphs for item in whole]
    assert len({item.id for item in in_ranges}) == 10
    with pytest.raises(DataError, match=r"no column 'body'.*Columns here: text"):
        list(read(hub_config(str(folder), text_column="body")))


def test_a_dataset_of_the_hub_needs_its_revision() -> None:
    with pytest.raises(ValueError, match="revision is null"):
        hub_config("wikimedia/wikipedia")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_large_file_is_cut_into_ranges_that_give_the_same_documents(
    folder: Path, table_config: Make, kind: str
) -> None:
    texts = [f"Text {number} " + "é" * (number % 40) for number in range(500)]
    if kind == "jsonl":
        (folder / "a.jsonl").write_text("\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in texts))
    else:
        pq.write_table(pa.table({"text": texts}), folder / "a.parquet", row_group_size=50)
    shards, _ = table_config(kind).plan(1_000)
    assert len(shards) > 2
    found = list(read(table_config(kind), shard_bytes=1_000))
    assert ["".join(item.paragraphs) for item in found] == [text.strip() for text in texts]
    assert len({item.id for item in found}) == len(texts)


def test_an_error_in_a_later_range_names_the_line_of_the_file(folder: Path, table_config: Make) -> None:
    (folder / "a.jsonl").write_text('{"text": "fine"}\n' * 300 + "not JSON\n")
    with pytest.raises(DataError, match=r"a\.jsonl:301: not JSON"):
        list(read(table_config("jsonl"), shard_bytes=1_000))
