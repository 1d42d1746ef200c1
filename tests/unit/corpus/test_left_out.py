"""What a reader leaves out is counted by reason, and shown: on the data page, in the dry run and in the last line."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corpora import build, drops_of

GOOD = "".join(f"Line number {number} of a text that is kept.\n" for number in range(20)).encode()
TEXTS: dict[str, bytes] = {
    "good.txt": GOOD,
    "bad.txt": b"A good line.\nA caf\xe9 and\ttwo\x1bmarks.\n",
    "empty.txt": b"\n\n",
    "torn.txt.gz": gzip.compress(b"".join(b"Torn %d.\n" % number for number in range(4000)), mtime=0)[:-20],
    "README": b"Read me.",
    "a.docx": b"PK",
}
WIKI: dict[str, bytes] = {
    "AA/wiki_00": b'<doc id="1" title="Life">\nLife\n\nOne.\n</doc>\n<doc id="2" title="Open">\nTwo, open.\n'
    b'<doc id="3" title="Bad">\nBad \xe9.\n</doc>\n<doc id="4" title="Day">\nDay\n\nFour.\n</doc>\n'
}


def samples_of(tmp_path: Path, config: Any, files: dict[str, bytes]) -> dict[str, list[tuple[str, str]]]:
    for name, content in files.items():
        (tmp_path / "text" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "text" / name).write_bytes(content)
    build(config, tmp_path / "out")
    content = drops_of(tmp_path / "out")
    found = {reason: [(one["id"], one["text"]) for one in shown] for reason, shown in content["samples"].items()}
    assert {reason: len(shown) for reason, shown in found.items()} == content["counts"]
    return found


def test_text_that_is_left_out_is_shown_with_its_place(text_config: Callable[..., Any], tmp_path: Path) -> None:
    config = text_config(document="line", on_undecodable="skip")
    found = samples_of(tmp_path, config, TEXTS)

    assert found["documents/undecodable"] == [("bad.txt:2", "A caf� and two�marks.")]
    assert found["files/empty"] == [("empty.txt", "")]
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
    }
