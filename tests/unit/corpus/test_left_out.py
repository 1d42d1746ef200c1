"""What a reader leaves out is counted by reason, and shown: on the corpus page, in the dry run and in the last line."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertline.corpus.build import build_corpus
from bertline.corpus.quality.drops import DropSamples, drops_in_words
from bertline.corpus.storage import FORMAT_VERSION, KIND
from bertline.evaluation.corpus_page import write_corpus_page
from bertline.foundation.errors import DataError
from bertline.foundation.manifests import read_manifest
from no_packages import NO_PACKAGES

GOOD = "".join(f"Line number {number} of a text that is kept.\n" for number in range(20)).encode()
TEXTS: dict[str, bytes] = {
    "good.txt": GOOD,
    "bad.txt": b"A good line.\nA caf\xe9 and\ttwo\x1bmarks.\n",
    "empty.txt": b"\n\n",
    "page.txt": b"<!DOCTYPE html><html><body>A page.</body></html>",
    "torn.txt.gz": gzip.compress(b"".join(b"Torn %d.\n" % number for number in range(4000)), mtime=0)[:-20],
    "README": b"Read me.",
    "a.docx": b"PK",
}
WIKI: dict[str, bytes] = {
    "AA/wiki_00": b'<doc id="1" title="Life">\nLife\n\nOne.\n</doc>\n<doc id="2" title="Open">\nTwo, open.\n'
    b'<doc id="3" title="Bad">\nBad \xe9.\n</doc>\n<doc id="4" title="Day">\nDay\n\nFour.\n</doc>\n',
    "LICENSE": b"A licence.\n",
}
ROWS: dict[str, bytes] = {
    "a.jsonl": b'{"text": "One."}\n{"text": "\xe9"}\n{"text": ""}\n{"text": "Four."}\n',
    "b.jsonl": b"",
}


def samples_of(tmp_path: Path, config: Any, files: dict[str, bytes]) -> dict[str, list[tuple[str, str]]]:
    for name, content in files.items():
        (tmp_path / "text" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "text" / name).write_bytes(content)
    samples = DropSamples()
    build_corpus(config, NO_PACKAGES, tmp_path / "out", num_workers=1, samples=samples)
    content = samples.content()
    found = {reason: [(one["id"], one["text"]) for one in shown] for reason, shown in content["samples"].items()}
    assert {reason: len(shown) for reason, shown in found.items()} == content["counts"]
    return found


def test_text_that_is_left_out_is_shown_with_its_place(text_config: Callable[..., Any], tmp_path: Path) -> None:
    config = text_config(document="line", on_undecodable="skip", on_markup="skip")
    found = samples_of(tmp_path, config, TEXTS)

    assert found["documents/undecodable"] == [("bad.txt:2", "A caf� and two�marks.")]
    assert found["files/empty"] == [("empty.txt", "")]
    assert found["files/markup"] == [("page.txt", TEXTS["page.txt"].decode())]
    assert (
        found["files/torn"][0][0] == "torn.txt.gz" and "the gzip data is torn after line" in found["files/torn"][0][1]
    )
    assert sorted(found["files/other_suffix"]) == [("README", ""), ("a.docx", "")]


def test_articles_that_are_left_out_are_shown(wiki_config: Callable[..., Any], tmp_path: Path) -> None:
    found = samples_of(tmp_path, wiki_config(on_undecodable="skip"), WIKI)

    assert sorted(found.pop("paragraphs/title")) == [("AA/wiki_00:1", "Life"), ("AA/wiki_00:4", "Day")]
    assert found == {
        "documents/unclosed": [("AA/wiki_00:2", "Two, open.")],
        "documents/undecodable": [("AA/wiki_00:3", "Bad �.")],
        "files/not_wikiextractor": [("LICENSE", "A licence.")],
    }


def test_rows_that_are_left_out_are_shown(table_config: Callable[..., Any], tmp_path: Path) -> None:
    found = samples_of(tmp_path, table_config("jsonl", on_undecodable="skip"), ROWS)

    assert found == {
        "documents/undecodable": [("a.jsonl:2", '{"text": "�"}')],
        "documents/no_text": [("a.jsonl:3", "")],
        "files/empty": [("b.jsonl", "")],
    }


def test_a_whole_document_that_is_left_out_shows_the_line_at_fault(
    text_config: Callable[..., Any], tmp_path: Path
) -> None:
    files = {"a.txt": GOOD, "b.txt": b"Good.\nNot \xff.\nGood.", "c.txt": GOOD + b"More."}
    found = samples_of(tmp_path, text_config(on_undecodable="skip"), files)
    assert found == {"documents/undecodable": [("b.txt:2", "Not �.")]}
    with pytest.raises(DataError, match=r"b\.txt:2"):
        samples_of(tmp_path, text_config(), files)


def test_the_last_line_says_which_files_were_converted_and_how_many_lines_have_replaced_bytes(
    text_config: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "text").mkdir()
    german = "Der Käufer wohnt in einer schönen Straße nahe der Brücke über den Fluß.\n" * 9
    for number, encoding in enumerate(["utf-8", "cp1252", "utf-16", "cp1252"]):
        text = f"Text {number}. {german}".encode(encoding)
        (tmp_path / "text" / f"{number}.txt").write_bytes(text)
    (tmp_path / "text/4.txt").write_bytes("Ganz schön, äußerst grün, sehr übel.\n".encode() + b"Nicht \xff.\nEnde.\n")
    samples = DropSamples()
    config = text_config(encoding="auto", on_undecodable="replace")
    build_corpus(config, NO_PACKAGES, tmp_path / "out", num_workers=1, samples=samples)
    assert drops_in_words(samples.counts) == (
        "nothing was dropped; 3 converted files (2 cp1252, 1 utf-16); 1 kept line (1 replaced)"
    )
    manifest = read_manifest(tmp_path / "out", kind=KIND, format_version=FORMAT_VERSION)
    assert manifest["encodings"] == {"cp1252": 2, "utf-16": 1, "lines/replaced": 1} and "changed" not in manifest
    write_corpus_page(tmp_path / "page.html", tmp_path / "out", samples.content())
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Cp1252: 2 converted files" in page and "The reader dropped these" not in page
