"""Annotated texts in the formats of annotation tools become the same words and tags; what cannot be read is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertline.cli.task_arguments import GivenFiles, file_format, placed, task_of_files
from bertline.corpus.tables import FORMATS_BY_ENDING, JSON_LINES, read_records
from bertline.foundation.bad_rows import BadRows
from bertline.foundation.errors import ConfigError, DataError
from bertline.kinds.build import build_task
from bertline.tasks.span_files import read_annotated
from corpora import NO_PACKAGES
from shipped_tasks import shipped_task, validated

TEXT = "Ada Lovelace met Bob."
SPANS = [(0, 12, "PER"), (17, 20, "PER")]
TAGGED = [("Ada", "B-PER"), ("Lovelace", "I-PER"), ("met", "O"), ("Bob", "B-PER"), (".", "O")]
WORDS, TAGS = [word for word, _ in TAGGED], [tag for _, tag in TAGGED]
NAMED = [{"start": start, "end": end, "label": label} for start, end, label in SPANS]
OFFSETS = [{"start_offset": start, "end_offset": end, "label": label} for start, end, label in SPANS]
VALUES = [
    {"value": {"start": s, "end": e, "text": TEXT[s:e], "labels": [name]}, "type": "labels"} for s, e, name in SPANS
]
BILUO = ["B-PER", "L-PER", "O", "U-PER", "O"]
Read = Callable[..., list[list[tuple[str, str]]]]


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Words with their tags of each text of a file, as `bertline finetune data=FILE` reads it."""

    def make(name: str, content: str | pa.Table, bad_rows: BadRows | None = None, **settings: Any) -> Any:
        path = tmp_path / name
        pq.write_table(content, path) if isinstance(content, pa.Table) else path.write_text(content)
        given = GivenFiles(files={"train": path}, format=FORMATS_BY_ENDING[path.suffix])
        task, _ = placed(task_of_files(given, None, settings, shipped_task), given, tmp_path / "linked")
        bad_rows = bad_rows or BadRows("error", option=None)
        sentences = read_annotated(path, validated("mine", task).source, bad_rows)
        bad_rows.end()
        return [[*zip(each.words, each.tags, strict=True)] for each in sentences]

    return make


def described(tags: list[Any], feature: dict[str, Any]) -> pa.Table:
    """A table with the metadata that `datasets` writes."""
    names = {"names": ["O", "B-PER", "I-PER"], "_type": "ClassLabel"}
    features = {"tokens": {}, "ner_tags": {"feature": names, **feature}}
    table = pa.table({"tokens": [WORDS], "ner_tags": tags})
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


FORMATS: dict[str, tuple[str, Any]] = {
    "Doccano": ("a.jsonl", lines({"id": 1, "text": TEXT, "label": SPANS})),
    "Doccano, behind a text without spans": (
        "a.jsonl", lines({"text": "It rained", "labels": []}, {"text": TEXT, "labels": SPANS}),
    ),
    "Doccano with relations": ("a.jsonl", lines({"text": TEXT, "entities": OFFSETS, "relations": []})),
    "Label Studio": ("a.json", json.dumps([{"data": {"text": TEXT}, "annotations": [{"result": VALUES}]}], indent=1)),
    "Label Studio's short form": ("a.json", json.dumps([{"text": TEXT, "label": [one["value"] for one in VALUES]}])),
    "Prodigy": ("a.jsonl", lines({"text": TEXT, "spans": NAMED, "tokens": [], "answer": "accept"})),
    "spaCy by an annotator": ("a.json", json.dumps({"classes": [], "annotations": [[TEXT, {"entities": SPANS}]]})),
    "spaCy's pairs": ("a.jsonl", lines(["It rained", {"entities": []}], [TEXT, {"entities": SPANS}])),
    "spaCy's documents": ("a.jsonl", lines({"text": TEXT, "ents": NAMED, "sents": [], "tokens": [{"id": 0}]})),
    "words and tags": ("a.jsonl", lines({"tokens": WORDS, "ner_tags": BILUO})),
    "words and tags in CSV": ("a.csv", f'tokens,tags\n"{WORDS}","{TAGS}"\n'),
    "datasets": ("a.parquet", described([[1, 2, 0, 1, 0]], {"_type": "Sequence"})),
    "datasets 4": ("a.parquet", described([[1, 2, 0, 1, 0]], {"_type": "List"})),
    "one word a row": (
        "a.csv", "Sentence #,Word,Tag\n" + "".join(f"{'s1' * (n == 0)},{w},{t}\n" for n, (w, t) in enumerate(TAGGED)),
    ),
    "one word a row, numbered": ("a.tsv", "sent_id\ttoken\tner\n" + "".join(f"7\t{w}\t{t}\n" for w, t in TAGGED)),
}  # fmt: skip


@pytest.mark.parametrize("tool", FORMATS)
def test_what_a_tool_writes_becomes_words_and_tags(read: Read, tool: str) -> None:
    assert read(*FORMATS[tool])[-1] == TAGGED


def test_columns_of_other_names_are_named(read: Read) -> None:
    content = lines({"body": TEXT, "text": "other", "marks": SPANS})
    assert read("a.jsonl", content, text_column="body", label_column="marks") == [TAGGED]
    rows = "".join(f"7,{word},{tag},7\n" for word, tag in TAGGED)
    assert read("a.csv", f"number,form,mark,n\n{rows}", text_column="form", label_column="mark", group_column="number")


@pytest.mark.parametrize(
    ("text", "spans", "tagged"),
    [
        ("Bob😀 and Ada", [(9, 12, "X")], [("Bob", "O"), ("😀", "O"), ("and", "O"), ("Ada", "B-X")]),
        ("in Paris-based Inc.", [(3, 8, "X")], [("in", "O"), ("Paris-based", "B-X"), ("Inc", "O"), (".", "O")]),
        ("a Bob , so", [(1, 6, "X")], [("a", "O"), ("Bob", "B-X"), (",", "O"), ("so", "O")]),
        ("a b", [(0, 1, "X"), (2, 3, "X"), (0, 1, "X")], [("a", "B-X"), ("b", "B-X")]),
    ],
)  # fmt: skip
def test_spans_count_characters_and_end_with_words(
    read: Read, text: str, spans: list[Any], tagged: list[tuple[str, str]]
) -> None:
    bad_rows = BadRows("error")
    assert read("a.jsonl", lines({"text": text, "label": spans}), bad_rows) == [tagged]
    assert bad_rows.dropped["span_ends_moved_to_those_of_words"] == ("-" in text)


def test_what_a_person_rejected_or_nobody_annotated_is_left_out_and_counted(read: Read) -> None:
    bad_rows = BadRows("error")
    prodigy = [{"text": TEXT, "spans": NAMED, "answer": answer} for answer in ("reject", "accept", "ignore")]
    assert read("a.jsonl", lines(*prodigy, {"text": "It", "answer": "accept"}), bad_rows) == [TAGGED, [("It", "O")]]
    assert bad_rows.dropped["not_accepted"] == 2
    cancelled, other = {"was_cancelled": True, "result": []}, {"result": VALUES[:1]}
    kinds = [[], [cancelled], [cancelled, {"result": VALUES}], [other, {"result": VALUES, "ground_truth": True}]]
    tasks = [{"data": {"text": TEXT}, "annotations": annotations} for annotations in kinds]
    assert read("a.json", json.dumps(tasks), bad_rows) == [TAGGED, TAGGED]
    assert bad_rows.dropped["not_annotated"] == 2


def test_articles_of_squad_are_told_from_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    squad = {"paragraphs": [{"context": TEXT, "qas": []}]}
    path.write_text(json.dumps([squad]))
    assert file_format(path) == "squad" and next(read_records(path, replace(JSON_LINES, format="json"))).values == squad


GOOD = {"text": TEXT, "label": SPANS}
BAD: dict[str, tuple[str, str]] = {
    "two tools": (lines(GOOD, {"text": TEXT, "spans": NAMED}), r"a.jsonl:2: it has no 'label'.*spans of Prodigy.*own"),
    "overlap": (
        lines(GOOD, {"text": TEXT, "label": [(0, 12, "PER"), (4, 16, "ORG")]}),
        r":2: the spans 'Ada Lovelace' \(0 to 12, PER\) and 'Lovelace met' \(4 to 16, ORG\) overlap",
    ),
    "outside": (lines(GOOD, {"text": TEXT, "label": [(17, 99, "PER")]}), r"\(17 to 99, PER\) has no word .* 21 char"),
    "white space": (lines(GOOD, {"text": "a b", "label": [(1, 2, "X")]}), r"the span ' ' \(1 to 2, X\) has no word"),
    "no label": (lines(GOOD, {"text": TEXT, "label": [(0, 3, " ")]}), "expected a start, an end and a label"),
    "labels": (lines(GOOD, {"text": TEXT, "label": ["PER"]}), "a span is 'PER'; expected a start"),
    "no text": (lines(GOOD, {"text": " ", "label": []}), "the text is ' ', without a word"),
    "bytes": (
        lines({"text": TEXT, "label": [{"start": 0, "end": 3, "text": "da", "labels": ["X"]}]}),
        r"'Ada' \(0 to 3, X\) should have the text 'da'. Starts and ends count characters of Unicode",
    ),
    "annotators": (
        lines({"data": {"text": TEXT}, "annotations": [{"result": VALUES}, {"result": VALUES[:1]}]}),
        "its annotations differ. Keep one, or mark the ground truth",
    ),
    "a word more": (
        lines({"words": WORDS, "tags": TAGS}, {"words": WORDS, "tags": TAGS[1:]}), ":2: its words .*expected a tag for",
    ),
    "numbers": (lines({"words": ["a"], "tags": [3]}), "the tag is 3; expected O.*Give the names of numbers"),
    "no tag": (lines({"words": ["a"], "tags": ["PER"]}), "the tag is 'PER'; expected O, B-TYPE.*Fix the tag"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_row_that_cannot_be_read_is_named_with_its_cause(read: Read, case: str) -> None:
    content, message = BAD[case]
    with pytest.raises(DataError, match=message):
        read("a.jsonl", content)


def test_a_file_of_spans_becomes_a_task_with_its_types(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        lines(*({"text": f"{TEXT} It rained {n} times.", "label": SPANS, "doc": n // 4} for n in range(40)))
    )
    given = GivenFiles(files={"train": path}, format="jsonl")
    task, _ = placed(task_of_files(given, None, {"group_column": "doc"}, shipped_task), given, tmp_path / "linked")
    build_task("mine", validated("mine", task), NO_PACKAGES, tmp_path / "rows")
    documents = [
        {*pq.read_table(tmp_path / f"rows/{one}.parquet")["documents"].to_pylist()} for one in ("train", "test")
    ]
    assert documents[1] and not documents[0] & documents[1]
    with pytest.raises(
        ConfigError, match="kind is 'classification', and the files are jsonl, spans of Doccano, .* which are for token"
    ):
        task_of_files(given, "classification", {}, shipped_task)
    task["source"]["label_pattern"] = "(.*)"
    with pytest.raises(ConfigError, match="label_pattern is for labels of texts, not for spans or tags"):
        validated("mine", task)
