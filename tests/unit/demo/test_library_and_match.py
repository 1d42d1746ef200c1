"""The tasks made from documentation strings: where rows come from, and what they do not give away."""

from __future__ import annotations

import pytest

from bertline.demo.config import DocsLibrarySourceConfig, DocsMatchSourceConfig
from bertline.demo.rows import held_out_sides
from bertline.demo.tasks import MATCH, MISMATCH, LibraryNames, docs_library_rows, docs_match_rows

LIBRARY = DocsLibrarySourceConfig(kind="docs_library", min_words=6, max_words=12, num_dev_rows=30, num_test_rows=60)
MATCHING = DocsMatchSourceConfig(kind="docs_match", min_words=4, num_dev_rows=30, num_test_rows=60)


def make(kind, modules, num_train_rows=None, seed=0):
    if kind == "library":
        return docs_library_rows(modules, LIBRARY, num_train_rows=num_train_rows, seed=seed)
    return docs_match_rows(modules, MATCHING, num_train_rows=num_train_rows, seed=seed)


def modules_of(rows):
    return {row.id.partition("#")[0] for row in rows}


@pytest.mark.parametrize("kind", ["library", "match"])
class TestBothTasks:
    def test_train_is_pretrained_on_and_dev_and_test_are_held_out_and_share_no_module(self, kind, modules):
        source = make(kind, modules)
        held_out = {module.name for module in modules if module.held_out}
        assert not modules_of(source.train) & held_out
        assert modules_of(source.dev) | modules_of(source.test) <= held_out
        assert not modules_of(source.dev) & modules_of(source.test)

    def test_no_example_stands_twice(self, kind, modules):
        source = make(kind, modules)
        keys = [row.content_key() for rows in (source.train, source.dev, source.test) for row in rows]
        assert len(keys) == len(set(keys))

    def test_a_smaller_training_set_is_the_beginning_of_a_larger_one(self, kind, modules):
        assert make(kind, modules, 20).train == make(kind, modules, 60).train[:20]


def test_no_library_is_named_in_a_passage(modules):
    names = LibraryNames(["numpy", "pandas", "mpmath"])
    source = make("library", modules)
    passages = [row.text for rows in (source.train, source.dev, source.test) for row in rows]
    assert passages
    assert [found for text in passages for found in names.found_in(text)] == []


def test_a_passage_that_was_pretrained_on_is_dropped_from_the_held_out_side(modules):
    # The second paragraph of each documentation string is the same in all modules.
    source = make("library", modules)
    in_train = {row.text.casefold() for row in source.train}
    assert not in_train & {row.text.casefold() for row in [*source.dev, *source.test]}
    assert source.dropped["repeated_passage"] > 0


def test_signature_alone_and_summary_alone_say_nothing(modules):
    rows = make("match", modules).train
    for column in ("text", "text_pair"):
        labels = {}
        for row in rows:
            labels.setdefault((row.id.partition("#")[0], getattr(row, column)), []).append(row.label)
        assert all(sorted(found) == [MATCH, MISMATCH] for found in labels.values())


def test_a_mismatch_has_the_summary_of_another_function_of_the_same_module(modules):
    own = {
        f"{module.name}#{docstring.name}": docstring.text.split("\n")[0]
        for module in modules
        for docstring in module.docstrings
    }
    by_summary = {summary: id_.partition("#")[0] for id_, summary in own.items()}
    for row in make("match", modules).train:
        function = row.id.rpartition(":")[0]
        assert (own[function] == row.text_pair) == (row.label == MATCH)
        assert by_summary[row.text_pair] == function.partition("#")[0]


def test_modules_that_come_or_grow_move_no_other_to_another_side():
    before = {f"m{number}": [number] for number in range(20)}
    after = {"another": [1] * 500, **{name: items * 50 for name, items in reversed(before.items())}, "last": [3]}
    first, second = (
        {
            item: side
            for side, items in held_out_sides(each, num_dev_rows=1, num_test_rows=2, seed=0).items()
            for item in items
        }
        for each in ({name: [name] for name in before}, {name: [name] for name in after})
    )
    assert {name: second[name] for name in before} == first
    assert set(first.values()) == {"dev", "test"}
