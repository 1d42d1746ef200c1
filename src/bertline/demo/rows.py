"""Shared parts of the tasks built from docstrings: held-out modules, texts of the pretraining text, balanced orders."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

from bertline.corpus.preparation import clean, duplicate_key
from bertline.demo.docstrings import ModuleDocs
from bertline.foundation.seeds import seed_for, unit_interval
from bertline.tasks.rows import LabelledRow

PRETRAINED_ON = "pretrained_on"
"""Key under which dropped rows are counted."""
_WORD = re.compile(r"\w+")
_ANCHOR_WORDS = 3
Item = TypeVar("Item")


def dev_or_test(module: str, *, num_dev_rows: int, num_test_rows: int, seed: int) -> Literal["dev", "test"]:
    """Assign a held-out module to dev or test by a hash of its name, in proportion to the requested rows.

    The assignment of a module does not change when other modules are added, removed or changed.

    Args:
        module: Full name of the module, such as `torch.nn.functional`.
        num_dev_rows: Number of dev rows requested, over all packages.
        num_test_rows: Number of test rows requested.
        seed: `split_seed` of the task.

    Example:
        >>> sides = [dev_or_test(f"a.x{n}", num_dev_rows=100, num_test_rows=200, seed=0) for n in range(300)]
        >>> sides.count("dev")
        99
    """
    return (
        "dev" if unit_interval(seed, "dev-or-test", module) * (num_dev_rows + num_test_rows) < num_dev_rows else "test"
    )


def balanced_order(rows: list[LabelledRow], *, seed: int, name: str) -> list[LabelledRow]:
    """Return the rows in a random order in which every prefix is balanced over labels, as far as rows allow.

    Each round takes one row of every label that has rows left. Within a label, every module contributes its first row
    before any contributes its second, so that no large module dominates a library. The order depends on the seed, the
    name and the ids only: adding or removing rows keeps the order of the others.

    Args:
        rows: Rows whose ids begin with the module and `#`, such as `numpy.linalg#norm:match`.
        seed: `split_seed` of the task.
        name: Name of the split; splits have independent orders.

    Example:
        >>> rows = [LabelledRow(f"m:{number}", "text", None, "ab"[number % 4 > 0]) for number in range(8)]
        >>> [row.label for row in balanced_order(rows, seed=0, name="train")[:4]].count("a")
        2
    """
    by_label: dict[str, list[LabelledRow]] = {}
    place_of = {row.id: seed_for(seed, "order", name, row.id) for row in rows}
    for row in sorted(rows, key=lambda row: (place_of[row.id], row.id)):
        by_label.setdefault(row.label, []).append(row)
    spread = [_spread_over_modules(by_label[label]) for label in sorted(by_label)]
    ordered: list[LabelledRow] = []
    for place in range(max(map(len, spread), default=0)):
        one_of_each = [candidates[place] for candidates in spread if place < len(candidates)]
        ordered += sorted(one_of_each, key=lambda row: place_of[row.id])
    return ordered


def _spread_over_modules(rows: list[LabelledRow]) -> list[LabelledRow]:
    """Reorder rows: the first row of every module, then the second row of every module, and so on."""
    taken: Counter[str] = Counter()
    turns: list[int] = []
    for row in rows:
        module = row.id.partition("#")[0]
        turns.append(taken[module])
        taken[module] += 1
    return [rows[i] for i in sorted(range(len(rows)), key=lambda i: turns[i])]


def held_out_sides(
    held_out: Mapping[str, Sequence[Item]], *, num_dev_rows: int, num_test_rows: int, seed: int
) -> dict[Literal["dev", "test"], list[Item]]:
    """Distribute the items of held-out modules over dev and test by `dev_or_test`."""
    sides: dict[Literal["dev", "test"], list[Item]] = {"dev": [], "test": []}
    for module, items in held_out.items():
        sides[dev_or_test(module, num_dev_rows=num_dev_rows, num_test_rows=num_test_rows, seed=seed)] += items
    return sides


def without_pretrained(
    held_out: Mapping[str, Sequence[Item]],
    modules: Sequence[ModuleDocs],
    texts_of: Callable[[Item], Iterable[str]],
    dropped: Counter[str],
    *,
    also_as: Callable[[str], str] | None = None,
) -> dict[str, list[Item]]:
    """Drop items of held-out modules whose text occurs in a pretraining module.

    A match counts anywhere: a paragraph, a sentence, part of a sentence, across paragraphs, and in documentation that
    the task does not use.

    Args:
        held_out: Items of each held-out module: rows, or parts that rows are built from.
        modules: All modules, in reading order.
        texts_of: Returns the texts of an item. A match of any of them drops the item.
        dropped: Counts dropped items under `PRETRAINED_ON`; updated in place.
        also_as: Rewriting that the task applies to texts. Pretraining text is searched both rewritten and unchanged.
    """
    texts = {text for items in held_out.values() for item in items for text in texts_of(item)}
    found = texts_found(texts, pretrained_texts(modules, also_as=also_as))
    kept = {module: [item for item in items if found.isdisjoint(texts_of(item))] for module, items in held_out.items()}
    if number := sum(map(len, held_out.values())) - sum(map(len, kept.values())):
        dropped[PRETRAINED_ON] += number
    return kept


def pretrained_texts(modules: Iterable[ModuleDocs], *, also_as: Callable[[str], str] | None = None) -> Iterator[str]:
    """Yield the full prose of each module that is not held out.

    Deduplication joins paragraphs that were separated by a repeated one, so a module with repeated paragraphs is
    yielded both with and without them. Each text is also yielded rewritten by `also_as`.
    """
    seen: set[bytes] = set()
    for module in modules:
        paragraphs = [text for docstring in module.docstrings for text in docstring.prose.paragraphs]
        first: list[str] = []
        for paragraph in paragraphs:
            key = duplicate_key(clean(paragraph))
            if key not in seen:
                seen.add(key)
                first.append(paragraph)
        if module.held_out:
            continue
        for text in (paragraphs, first) if 1 < len(first) < len(paragraphs) else (paragraphs,):
            yield " ".join(text)
            if also_as is not None:
                yield " ".join(map(also_as, text))


def texts_found(texts: Iterable[str], searched: Iterable[str]) -> set[str]:
    """Return the texts that occur in one of the searched texts, ignoring case, white space and punctuation.

    Args:
        texts: Texts to look for. A text without any word is never found.
        searched: Texts to search; iterated once.

    Example:
        >>> sorted(texts_found(["Sum of  squares.", "Sum of cubes."], ["Return the sum of `squares`, or None."]))
        ['Sum of  squares.']
    """
    waiting: dict[str, list[str]] = {}
    for text in texts:
        if words := _words(text):
            waiting.setdefault(" ".join(words), []).append(text)
    anchors: dict[tuple[str, ...], list[str]] = {}
    for wanted in waiting:
        anchors.setdefault(_anchor(wanted.split()), []).append(wanted)
    lengths = sorted({len(anchor) for anchor in anchors})
    found: set[str] = set()
    for text in searched:
        words = _words(text)
        joined = " ".join(words)
        for length in lengths:
            # The empty n-gram occurs in every text.
            present = {()} if not length else set(zip(*(words[start:] for start in range(length)), strict=False))
            for anchor in anchors.keys() & present:
                found.update(wanted for wanted in anchors[anchor] if wanted not in found and wanted in joined)
    return {text for wanted in found for text in waiting[wanted]}


def _words(text: str) -> list[str]:
    return _WORD.findall(clean(text).casefold())


def _anchor(words: list[str]) -> tuple[str, ...]:
    """Return consecutive inner words as lookup key: the first and last word of a text may match inside longer words."""
    inner = words[1:-1]
    length = min(_ANCHOR_WORDS, len(inner))
    starts = range(len(inner) - length + 1)
    place = max(starts, key=lambda start: sum(map(len, inner[start : start + length])))
    return tuple(inner[place : place + length])
