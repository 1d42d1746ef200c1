"""The task docs_parameters: labels from signatures, nothing given away by markup."""

from __future__ import annotations

from collections import Counter

import pytest

from bertline.demo.config import DocsParametersSourceConfig
from bertline.demo.docstrings import Docstring, ModuleDocs
from bertline.demo.tasks import docs_parameters_sentences, words_of

SIZES = DocsParametersSourceConfig(kind="docs_parameters", min_words=5, max_words=14, num_dev_rows=10, num_test_rows=20)


def sentences(modules, *, num_train_rows=None, seed=0, sizes=SIZES, dropped=None):
    dropped = Counter() if dropped is None else dropped
    return docs_parameters_sentences(modules, sizes, num_train_rows=num_train_rows, seed=seed, dropped=dropped)


def one_module(text, parameters=("axis", "a", "n"), kind="function", name="f"):
    return [ModuleDocs("lib", "lib.mod", "lib.mod", False, (Docstring(name, kind, parameters, text),))]


def tagged(text, **changes):
    found = sentences(one_module(text, **changes))["train"]
    return [" ".join(f"[{w}]" if t == "B-PARAM" else w for w, t in zip(s.words, s.tags, strict=True)) for s in found]


@pytest.fixture
def many():
    """Two libraries of ten modules; the last five of each are held out."""
    return [
        ModuleDocs(
            lib, f"{lib}.m{number}", f"{lib}.m{number}", number >= 5,
            tuple(
                Docstring(f"f{n}", "function", ("axis",), f"Sum {lib} number{number} x{n} along the axis of it.")
                for n in range(6)
            ),
        )
        for lib in ("alib", "blib")
        for number in range(10)
    ]  # fmt: skip


def test_words_of_the_signature_are_tagged_and_only_whole_ones():
    text = "Sum along the axis or axes, n times, n-th x.axis again."
    assert tagged(text) == ["Sum along the [axis] or axes , [n] times , n-th x.axis again ."]


def test_a_paragraph_gives_a_row_for_each_sentence_that_names_a_parameter():
    dropped = Counter()
    text = "Sum along the axis given. Nothing is said here at all. The axis counts from zero.\n\nIt is n."
    found = sentences(one_module(text), dropped=dropped)["train"]
    assert [s.words[:3] for s in sorted(found, key=lambda s: s.id)] == [
        ("Sum", "along", "the"),
        ("The", "axis", "counts"),
    ]
    assert len({s.id for s in found}) == 2
    assert {s.document for s in found} == {"lib.mod"}
    assert dropped == {"names_no_parameter": 1, "too_few_words": 1}


def test_train_is_pretrained_on_and_dev_and_test_are_held_out_and_share_no_module(many):
    splits = sentences(many)
    modules = {split: {s.document for s in found} for split, found in splits.items()}
    held_out = {module.name for module in many if module.held_out}
    assert not modules["train"] & held_out
    assert modules["dev"] | modules["test"] <= held_out
    assert not modules["dev"] & modules["test"]
    assert {split: len(found) for split, found in splits.items()} == {"train": 60, "dev": 10, "test": 20}


def test_a_sentence_stands_once_and_on_the_side_that_is_pretrained_on(many):
    doubled = [ModuleDocs(m.package, m.name, m.group, m.held_out, (*many[0].docstrings, *m.docstrings)) for m in many]
    splits = sentences(doubled)
    words = [s.words for found in splits.values() for s in found]
    assert len(words) == len(set(words))
    repeated = {tuple(words_of(d.text)) for d in many[0].docstrings}
    assert not repeated & {s.words for split in ("dev", "test") for s in splits[split]}
