from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertline.foundation.errors import DataError
from reading import read

Make = Callable[..., Any]
POEM = "Roses are\nred.\n\n\nViolets\nare blue.\n"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("file", [("poem.txt", "poem.txt", ("Roses are\nred.", "Violets\nare blue."))]),
        ("blank_line", [("poem.txt:1", "", ("Roses are\nred.",)), ("poem.txt:5", "", ("Violets\nare blue.",))]),
        (
            "line",
            [(f"poem.txt:{n}", "", (t,)) for n, t in ((1, "Roses are"), (2, "red."), (5, "Violets"), (6, "are blue."))],
        ),
    ],
)
def test_a_document_is_what_the_configuration_says(
    folder: Path, text_config: Make, document: str, expected: list[tuple[str, str, tuple]]
) -> None:
    (folder / "poem.txt").write_text(POEM)

    found = read(text_config(document=document))

    assert [(item.id, item.group, item.paragraphs) for item in found] == expected


@pytest.mark.parametrize(
    ("document", "left"), [("file", []), ("blank_line", ["b.txt:4"]), ("line", ["b.txt:1", "b.txt:4"])]
)
def test_only_the_undecodable_document_is_left_out(
    folder: Path, text_config: Make, document: str, left: list[str]
) -> None:
    (folder / "b.txt").write_bytes(b"good\nb\xffd\n\nfine\n")
    dropped: Counter[str] = Counter()

    found = read(text_config(document=document, on_undecodable="skip"), dropped)

    assert [item.id for item in found] == left
    assert dropped["documents/undecodable"] == 1


WIKI = """<doc id="12" url="http://x?curid=12" title="Cats &amp; dogs">
Cats & dogs

Cats chase<br> mice.
Dogs chase cats.

</doc>
<doc id="13" url="http://x?curid=13" title="Empty">
Empty

</doc>
"""


def test_articles_lose_title_and_tags(folder: Path, wiki_config: Make) -> None:
    (folder / "wiki_00").write_text(WIKI)
    dropped: Counter[str] = Counter()

    found = list(read(wiki_config(), dropped))

    assert [(item.id, item.group) for item in found] == [("wiki_00:12", "12"), ("wiki_00:13", "13")]
    assert found[0].paragraphs == ("Cats chase  mice.", "Dogs chase cats.")
    assert found[1].paragraphs == ()
    assert dropped["paragraphs/title"] == 2


def test_text_outside_of_articles_is_an_error(folder: Path, wiki_config: Make) -> None:
    (folder / "wiki_00").write_text(WIKI + "stray\n")
    with pytest.raises(DataError, match=r"wiki_00:12: text outside of articles, 'stray'"):
        list(read(wiki_config()))


def test_a_regular_expression_says_where_a_document_begins(folder: Path, text_config: Make) -> None:
    (folder / "all.txt").write_text("Before.\n== One ==\nFirst.\n\nMore.\n== Two == with a rest\nSecond.\n")

    found = read(text_config(document="regex", document_start="^== .* =="))

    assert [(item.id, item.paragraphs) for item in found] == [
        ("all.txt:1", ("Before.",)),
        ("all.txt:3", ("First.", "More.")),
        ("all.txt:6", ("with a rest\nSecond.",)),
    ]
