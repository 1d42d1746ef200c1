"""The tasks made from documentation strings: where rows come from, and what they do not give away."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter

import pytest

from bertline.demo.config import DocsLibrarySourceConfig, DocsMatchSourceConfig
from bertline.demo.docs_library import LibraryNames, docs_library_rows
from bertline.demo.docs_match import MATCH, MISMATCH, docs_match_rows
from bertline.demo.rows import balanced_order, held_out_sides
from bertline.tasks.rows import LabelledRow

LIBRARY = DocsLibrarySourceConfig(kind="docs_library", min_words=6, max_words=12, num_dev_rows=30, num_test_rows=60)
LABEL = attrgetter("label")
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

    def test_every_prefix_is_balanced(self, kind, modules):
        counts = Counter(row.label for row in make(kind, modules).train[:30])
        assert max(counts.values()) - min(counts.values()) <= 1

    def test_another_seed_gives_another_order(self, kind, modules):
        assert make(kind, modules, 20, seed=1).train != make(kind, modules, 20, seed=0).train


def test_no_library_is_named_in_a_passage(modules):
    names = LibraryNames(["numpy", "pandas", "mpmath"])
    source = make("library", modules)
    passages = [row.text for rows in (source.train, source.dev, source.test) for row in rows]
    assert passages
    assert [found for text in passages for found in names.found_in(text)] == []


def test_passages_have_the_configured_length(modules):
    lengths = {len(row.text.split()) for row in make("library", modules).train}
    assert min(lengths) >= LIBRARY.min_words
    assert max(lengths) <= LIBRARY.max_words


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


@pytest.mark.parametrize("task", ["library", "match"])
def test_rows_of_a_module_have_one_source(modules, task):
    """Modules are what is held out, and a mismatch has the summary of another function of its module."""
    train = make(task, modules).train
    named = {module.name for module in modules}
    assert {row.cluster for row in train} <= named and len({row.cluster for row in train}) < len(train)
    assert all(row.id.startswith(f"{row.cluster}#") for row in train)


def test_no_summary_names_its_function(modules):
    source = make("match", modules)
    for row in source.train:
        name = row.text.partition("(")[0].rpartition(".")[2]
        assert name.casefold() not in row.text_pair.casefold()


def test_dev_and_test_take_their_shares():
    modules = {f"m{number}": [number] for number in range(3000)}
    sides = held_out_sides(modules, num_dev_rows=1000, num_test_rows=2000, seed=0)
    assert 900 < len(sides["dev"]) < 1100


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


def test_rows_that_come_leave_the_others_in_their_order():
    rows = [LabelledRow(f"{module}:{n}", "", None, "ab"[n % 2]) for module in "xyz" for n in range(20)]
    more = [LabelledRow(f"w:{n}", "", None, "ab"[n % 2]) for n in range(6)]
    before = [row for row in balanced_order(rows, LABEL, seed=0, name="test") if row.label == "a"]
    after = [row for row in balanced_order([*more, *rows], LABEL, seed=0, name="test") if row.label == "a"]
    assert [row for row in after if row not in more] == before


def test_a_label_that_runs_out_leaves_the_others_balanced():
    rows = [
        LabelledRow(f"{label}{number}", "", None, label)
        for label, n in (("a", 2), ("b", 9), ("c", 9))
        for number in range(n)
    ]
    ordered = [row.label for row in balanced_order(rows, LABEL, seed=0, name="train")]
    assert Counter(ordered[:6]) == {"a": 2, "b": 2, "c": 2}
    assert Counter(ordered[6:]) == {"b": 7, "c": 7}


def test_no_large_module_stands_for_its_library():
    rows = [
        LabelledRow(f"{module}#{n}", "", None, "a")
        for module, size in (("big", 50), ("x", 2), ("y", 2))
        for n in range(size)
    ]
    modules = Counter(row.id.partition("#")[0] for row in balanced_order(rows, LABEL, seed=0, name="test")[:6])
    assert modules == {"big": 2, "x": 2, "y": 2}
