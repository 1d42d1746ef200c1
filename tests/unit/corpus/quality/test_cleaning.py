from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline.corpus.quality.cleaning import join_hyphens, markup_in, without_markup
from bertline.corpus.quality.drops import drops_in_words
from bertline.corpus.reader import CleaningConfig
from bertline.corpus.storage import read_documents
from corpora import build as build_corpus
from corpora import drops_of

NOTHING: dict[str, Any] = {"fix_mojibake": False, "join_hyphens": False, "markup": "keep"}


def cleaning(**changes: Any) -> CleaningConfig:
    return CleaningConfig(**{**NOTHING, **changes})


@pytest.fixture
def build(tmp_path: Path, text_config: Callable[..., Any]) -> Callable[..., tuple[list[str], dict[str, Any], Path]]:
    def made(texts: Iterable[str], **choices: Any) -> tuple[list[str], dict[str, Any], Path]:
        (tmp_path / "text").mkdir(exist_ok=True)
        for number, text in enumerate(texts):
            (tmp_path / "text" / f"{number:03}.txt").write_text(text, encoding="utf-8")
        out = tmp_path / "out"
        build_corpus(text_config(cleaning=cleaning(**choices), validation_fraction=0.0), out)
        read = [" ".join(document.sentences) for document in read_documents(out, "train")]
        return read, drops_of(out), out

    return made


def test_a_divided_word_becomes_what_its_document_writes_elsewhere(build: Callable[..., Any]) -> None:
    found, drops, out = build(
        [
            "He consid-\nered the well-\nknown case, a cost-\neffective one with a neolo-\ngism of Anglo-\nSaxons.\n\n"
            "It was considered. A well-known case. The cost was effective, pre-\nand post-war.",
            "Konsi\u00ad\nderation - 1990-\n1995",
        ],
        join_hyphens=True,
    )

    assert found == [
        "He considered the well-known case, a cost-effective one with a neologism of Anglo-Saxons. "
        "It was considered. A well-known case. The cost was effective, pre- and post-war.",
        "Konsideration - 1990- 1995",
    ]
    changed = {"changed_paragraphs/hyphens": 3}
    assert drops["counts"] == changed
    assert drops_in_words(changed) == "nothing was dropped; 3 changed paragraphs (3 hyphens)"
    assert json.loads((out / "manifest.json").read_text())["changed"] == changed


@given(st.text(st.sampled_from("ab-\n \u00adB."), max_size=40), st.sets(st.sampled_from(["ab", "a-b", "a", "b"])))
def test_joining_loses_no_letter_and_keeps_their_order(text: str, words: set[str]) -> None:
    letters = [character for character in text if character.isalpha()]
    assert [character for character in join_hyphens(text, words) if character.isalpha()] == letters


MARKED = "Euler {{birth|1707}} saw [[Basel|the city]] &amp; wrote formula_53 () for <b>all</b>.<br/>He left."
UNMARKED = "Euler saw the city & wrote for all. He left."
KINDS = ("empty_brackets", "entity", "formula", "link", "tag", "template")


@pytest.mark.parametrize(
    ("markup", "left", "counted"), [("say", MARKED, "marked_paragraphs"), ("remove", UNMARKED, "changed_paragraphs")]
)
def test_markup_is_counted_and_shown_or_removed(
    build: Callable[..., Any], markup: str, left: str, counted: str
) -> None:
    found, drops, out = build([MARKED, "A plain text."], markup=markup)
    assert found == [left, "A plain text."]
    assert all("wrote formula_53" in samples[0]["text"] for samples in drops["samples"].values())
    changed = dict.fromkeys((f"{counted}/{kind}" for kind in KINDS), 1)
    assert json.loads((out / "manifest.json").read_text())["changed"] == drops["counts"] == changed


@pytest.mark.parametrize(
    "text",
    ["if a < b and b > c:", "AT&T and R&D; more", "call f() and g(x)", "a [list] and {set}", "I <think so>", "sub(,)"],
)
def test_text_that_only_looks_like_markup_is_none(text: str) -> None:
    assert markup_in(text) == {}
    assert without_markup(text) == text


def test_nested_templates_and_tables_go_whole() -> None:
    assert without_markup("a {{x|{{y|{{z}}}}}} b {| class=q |} c").split() == ["a", "b", "c"]


def test_text_of_a_wrong_encoding_is_repaired_and_other_text_is_not(build: Callable[..., Any]) -> None:
    wrong = "Das ist eine schöne Straße in Köln.".encode().decode("latin-1")
    right = "Ein schöner Tag – “naïve” café, Ångström."
    found, drops, _ = build([f"{wrong}\n\n{right}"], fix_mojibake=True)
    assert found == [f"Das ist eine schöne Straße in Köln. {right}"]
    assert drops["counts"] == {"changed_paragraphs/mojibake": 1}
