"""No dev or test row of the docs_* tasks occurs in what the encoder was pretrained on."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline.corpus.build import build_corpus
from bertline.corpus.files import Part
from bertline.corpus.storage import read_documents
from bertline.demo.config import (
    DocsLibrarySourceConfig,
    DocsMatchSourceConfig,
    DocsParametersSourceConfig,
    DocsSearchSourceConfig,
    PythonDocsConfig,
)
from bertline.demo.docstrings import Docstring, ModuleDocs
from bertline.demo.rows import PRETRAINED_ON, texts_found
from bertline.demo.tasks import docs_library_rows, docs_match_rows, docs_parameters_sentences, docs_search_splits
from corpora import local

WORDS = (
    *("array", "axis", "value", "shape", "order", "index", "count", "level", "matrix", "vector", "table", "column"),
    *("label", "point", "frame", "graph"),
)


def sentence(number):
    words = random.Random(number).choices(WORDS, k=6)
    return f"Return the {' '.join(words)} of case {number} along the axis given."


def function(place, summary, rest):
    return Docstring(f"f{place}", "function", ("axis",), f"{summary}\n\n{rest}")


@pytest.fixture
def leaking():
    """Two packages of train and held-out modules; what is held out stands, in some way, also in train.

    The n-th held-out function has both its sentences in train for n = 0..4: as paragraphs, as sentences of a longer
    one, with other case and white space, inside a longer sentence, and in a docstring of a class.
    """
    held_out, train = [], []
    for place in range(40):
        first, second = sentence(2 * place), sentence(2 * place + 1)
        held_out.append(function(place, first, second))
        ways = (
            f"{first}\n\n{second}",
            f"Something stands before. {first} {second} Something stands behind.",
            f"{first.upper()}\n\n{second.replace(' ', '   ')}",
            f"As is said elsewhere, {first[:-1].lower()}, and {second[:-1].lower()}, which is all.",
        )
        if place < 4:
            train.append(Docstring(f"_g{place}", "function", (), ways[place]))
        elif place == 4:
            train.append(Docstring("Box", "class", (), f"A box for things.\n\n{first} {second}"))
    own = [function(100 + n, sentence(1000 + 2 * n), sentence(1001 + 2 * n)) for n in range(40)]
    return [
        *(ModuleDocs("alib", f"alib.t{n}", "alib.t", False, (*train[n::4], *own[n::4])) for n in range(4)),
        *(ModuleDocs("alib", f"alib.h{n}", "alib.h", True, tuple(held_out[n::4])) for n in range(4)),
        ModuleDocs("blib", "blib.t", "blib.t", False, tuple(function(n, sentence(3000 + n), "") for n in range(9))),
    ]


ROWS = {"num_dev_rows": 90, "num_test_rows": 90}
ALL = {"num_train_rows": None, "seed": 0}


def library(modules):
    config = DocsLibrarySourceConfig(kind="docs_library", min_words=6, max_words=30, **ROWS)
    rows, dropped = docs_library_rows(modules, config, **ALL)
    return [row.text for row in rows["dev"] + rows["test"]], dropped


def match(modules):
    rows, dropped = docs_match_rows(modules, DocsMatchSourceConfig(kind="docs_match", min_words=4, **ROWS), **ALL)
    return [row.text_pair for row in rows["dev"] + rows["test"]], dropped


def parameters(modules):
    config = DocsParametersSourceConfig(kind="docs_parameters", min_words=4, max_words=40, **ROWS)
    made, dropped = docs_parameters_sentences(modules, config, **ALL)
    return [" ".join(row.words).replace(" .", ".") for split in ("dev", "test") for row in made[split]], dropped


def search(modules):
    config = DocsSearchSourceConfig(kind="docs_search", min_words=4, max_words=30, num_documents=200, **ROWS)
    made = docs_search_splits(modules, config, **ALL)
    texts = dict(zip(made.collection.ids, made.collection.texts, strict=True))
    rows = [made.splits[split] for split in ("dev", "test")]
    return [text for each in rows for text in (*each.queries, *(texts[i] for i in each.ids))], made.dropped


@pytest.mark.parametrize("make", [library, match, parameters, search])
def test_a_held_out_text_that_stands_in_train_in_any_way_is_dropped_and_counted(make, leaking):
    texts, dropped = make(leaking)
    clean_texts, dropped_clean = make([module for module in leaking if module.held_out])

    leaked = {sentence(number) for number in range(10)}
    assert leaked & set(clean_texts)
    assert not leaked & set(texts)
    assert set(texts) == set(clean_texts) - leaked
    assert dropped[PRETRAINED_ON] > 0
    assert dropped_clean[PRETRAINED_ON] == 0


TEXTS = st.lists(st.sampled_from(["a", "b", "ab", "c", "bc.", "B,", "`a`", "--", " "]), max_size=7).map(" ".join)


@given(st.lists(TEXTS, max_size=6), st.lists(TEXTS, max_size=4))
def test_found_is_whatever_a_plain_search_finds(texts, searched):
    def plain(text):
        return " ".join("".join(c if c.isalnum() else " " for c in text.casefold()).split())

    expected = {text for text in texts if plain(text) and any(plain(text) in plain(each) for each in searched)}
    assert texts_found(texts, searched) == expected


@pytest.mark.parametrize("deduplicate", ["paragraph", "document", "none"])
def test_no_dev_or_test_row_stands_in_the_train_text_of_the_corpus_built(
    leaking, docs_corpus_config, deduplicate, monkeypatch, tmp_path
):
    monkeypatch.setattr("bertline.demo.docstrings.module_batches", lambda _: ([(Part("a", "a", size=1),)], 0))
    monkeypatch.setattr("bertline.demo.docstrings.read_batch", lambda *_: iter(leaking))
    monkeypatch.setattr("bertline.corpus.build.package_versions", lambda _: {})
    config = dataclasses.replace(docs_corpus_config, deduplicate=deduplicate)
    packages = PythonDocsConfig(packages=(None,), held_out_fraction=0.1, split_seed=0)
    build_corpus(config, packages, tmp_path / "corpus", **local(tmp_path / "corpus"))
    train = [
        " ".join(" ".join(document.sentences).casefold().split())
        for document in read_documents(tmp_path / "corpus", "train")
    ]
    for make in (library, match, parameters, search):
        texts, _ = make(leaking)
        assert len(texts) > 20
        assert [text for text in texts if any(" ".join(text.casefold().split()) in each for each in train)] == []
