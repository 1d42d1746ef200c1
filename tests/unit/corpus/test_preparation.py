from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertline.corpus.document import SourceDocument, clean
from bertline.corpus.preparation import split_document
from bertline.corpus.selection import split_of
from bertline.corpus.sentences.splitter import LinesConfig
from bertline.corpus.storage import read_documents
from corpora import build, drops_of


@pytest.mark.parametrize(
    ("dirty", "expected"),
    [
        ("  two\t words\r\n", "two words"),
        ("zero\u200bwidth soft\u00adhyphen", "zerowidth softhyphen"),
        ("\ufeffmark", "mark"),
        ("no\u00a0break\u3000space", "no break space"),
        ("bell\x07 and \x00 nul", "bell and nul"),
        ("lone \ud800 surrogate", "lone surrogate"),
        ("Cafe\u0301", "Café"),
        ("e\u200b\u0301", "é"),
        ("\x00 \u200b", ""),
    ],
)
def test_cleaning(dirty: str, expected: str) -> None:
    assert clean(dirty) == expected


Make = Callable[..., Any]
TEXTS = ["Common one.\n\nOnly in A.", "COMMON  one.\n\nOnly in B.", "Common one.", "common one.\n\nonly in a."]


@pytest.mark.parametrize(
    ("deduplicate", "left", "dropped"),
    [
        ("none", [2, 2, 1, 2], {}),
        ("document", [2, 2, 1], {"documents/duplicate": 1}),
        ("paragraph", [2, 1], {"documents/duplicate": 2, "paragraphs/duplicate": 4}),
    ],
)
@pytest.mark.parametrize("shard_bytes", [1, 1000])
def test_the_first_of_equal_texts_stays(
    text_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard_bytes: int, deduplicate: str,
    left: list[int], dropped: dict[str, int],
) -> None:  # fmt: skip
    monkeypatch.setattr("bertline.corpus.build.SHARD_BYTES", shard_bytes)
    (tmp_path / "text").mkdir()
    for number, text in enumerate([*TEXTS, "\u200b", "Short."]):
        (tmp_path / "text" / f"{number}.txt").write_text(text)
    out = tmp_path / "out"

    build(text_config(deduplicate=deduplicate, min_document_characters=7, validation_fraction=0.0), out)

    assert [len(document.sentences) for document in read_documents(out, "train")] == left
    assert drops_of(out)["counts"] == dropped | {"documents/empty": 1, "documents/too_short": 1}


def test_the_split_follows_the_group_and_comes_near_the_fraction(text_config: Make) -> None:
    config = text_config(validation_fraction=0.2)
    sides = {}
    for number in range(2000):
        batch = [SourceDocument(f"{number}.{part}", f"group {number}", (f"Text {part}.",)) for part in range(2)]
        prepared = [split_document(one, splitter=LinesConfig(kind="lines"))[0] for one in batch]
        first, second = (split_of(document, config) for document in prepared if document is not None)
        assert first == second
        sides[number] = first
    assert 0.17 < sum(side == "validation" for side in sides.values()) / len(sides) < 0.23
