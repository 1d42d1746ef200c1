"""Shared parts of the tasks built from docstrings: held-out modules, texts of the pretraining text, balanced orders.

A task collects its items (rows, or parts that rows are built from) with `items_by_side`, orders those of each split
with `ordered_splits` and takes as many as it is asked for with `first_rows`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TypeVar

from bertline.corpus.document import clean, duplicate_key
from bertline.demo.config import DocsSourceConfig
from bertline.demo.docstrings import Docstring, ModuleDocs
from bertline.foundation.seeds import seed_for, unit_interval
from bertline.tasks.source_files import WithId
from bertline.tasks.stored_rows import SplitName

PRETRAINED_ON = "pretrained_on"
"""Key under which dropped rows are counted."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_WORD = re.compile(r"\w+")
_ANCHOR_WORDS = 3
Other = TypeVar("Other")


def items_by_side(
    modules: Sequence[ModuleDocs],
    items_of: Callable[[ModuleDocs], Iterable[Other]],
    texts_of: Callable[[Other], Iterable[str]],
    dropped: Counter[str],
    *,
    also_as: Callable[[str], str] | None = None,
) -> tuple[dict[str, list[Other]], dict[str, list[Other]]]:
    """Return the items of each pretraining module, and those of each held-out module that are in no pretraining text.

    A text counts wherever it occurs there: as a paragraph, a sentence, part of a sentence, across paragraphs, and in
    documentation that the task does not use.

    Args:
        modules: All modules, in reading order.
        items_of: Returns the items of a module. It is called for pretraining modules first, so that of an item on both
            sides it can drop the held-out copy.
        texts_of: Returns the texts of an item. A match of any of them drops the item.
        dropped: Counts dropped items under `PRETRAINED_ON`; updated in place.
        also_as: Rewriting that the task applies to texts. Pretraining text is searched both rewritten and unchanged.
    """
    sides: dict[bool, dict[str, list[Other]]] = {False: {}, True: {}}
    for module in sorted(modules, key=lambda module: module.held_out):
        sides[module.held_out][module.name] = list(items_of(module))
    texts = {text for items in sides[True].values() for item in items for text in texts_of(item)}
    pretrained = texts_found(texts, pretrained_texts(modules, also_as=also_as))
    held_out = {
        module: [item for item in items if pretrained.isdisjoint(texts_of(item))]
        for module, items in sides[True].items()
    }
    if number := sum(map(len, sides[True].values())) - sum(map(len, held_out.values())):
        dropped[PRETRAINED_ON] += number
    return sides[False], held_out


def ordered_splits(
    train: Mapping[str, Sequence[WithId]],
    held_out: Mapping[str, Sequence[WithId]],
    config: DocsSourceConfig,
    label_of: Callable[[WithId], str],
    *,
    seed: int,
) -> dict[SplitName, list[WithId]]:
    """Return all items of train, dev and test in their `balanced_order`; dev and test share no module."""
    sides = held_out_sides(held_out, num_dev_rows=config.num_dev_rows, num_test_rows=config.num_test_rows, seed=seed)
    splits = {"train": [item for items in train.values() for item in items], **sides}
    return {split: balanced_order(items, label_of, seed=seed, name=split) for split, items in splits.items()}


def first_rows(
    train: Mapping[str, Sequence[WithId]],
    held_out: Mapping[str, Sequence[WithId]],
    config: DocsSourceConfig,
    label_of: Callable[[WithId], str],
    *,
    num_train_rows: int | None,
    seed: int,
) -> dict[SplitName, list[WithId]]:
    """Return the first of `ordered_splits`: train (None: all), dev and test, as many as the task asks for."""
    splits = ordered_splits(train, held_out, config, label_of, seed=seed)
    wanted = {"train": num_train_rows, "dev": config.num_dev_rows, "test": config.num_test_rows}
    return {split: items[: wanted[split]] for split, items in splits.items()}


def functions_kept(
    module: ModuleDocs, item_of: Callable[[Docstring], Other | str], dropped: Counter[str]
) -> Iterator[Other]:
    """Yield what `item_of` makes of each function of a module; where it gives a reason to drop it, that is counted."""
    for docstring in module.docstrings:
        if docstring.kind != "function":
            continue
        made = item_of(docstring)
        if isinstance(made, str):
            dropped[made] += 1
        else:
            yield made


def summary_and_rest(docstring: Docstring) -> tuple[str, str]:
    """Return the first sentence of the first prose paragraph, and all prose after it; both empty without prose."""
    first, *others = docstring.prose.paragraphs or ("",)
    summary, *rest = _SENTENCE_END.split(first, maxsplit=1)
    return summary, " ".join([*rest, *others])


def balanced_order(
    items: Iterable[WithId], label_of: Callable[[WithId], str], *, seed: int, name: SplitName
) -> list[WithId]:
    """Return the items in a random order in which every prefix is balanced over labels, as far as items allow.

    Each round takes one item of every label that has items left. Within a label, every module contributes its first
    item before any contributes its second, so that no large module dominates a library. The order depends on the seed,
    the name and the ids only: adding or removing items keeps the order of the others.
    Ids begin with the module and `#`, such as `numpy.linalg#norm:match`.

    >>> from bertline.tasks.source_files import LabelledRow
    >>> rows = [LabelledRow(f"m:{number}", "text", None, "ab"[number % 4 > 0]) for number in range(8)]
    >>> [row.label for row in balanced_order(rows, lambda row: row.label, seed=0, name="train")[:4]].count("a")
    2
    """
    by_label: dict[str, list[WithId]] = {}
    place_of = {item.id: seed_for(seed, "order", name, item.id) for item in items}
    for item in sorted(items, key=lambda item: (place_of[item.id], item.id)):
        by_label.setdefault(label_of(item), []).append(item)
    spread = [_spread_over_modules(by_label[label]) for label in sorted(by_label)]
    rounds = ([item for item in each if item is not None] for each in zip_longest(*spread))
    return [item for each in rounds for item in sorted(each, key=lambda item: place_of[item.id])]


def _spread_over_modules(items: list[WithId]) -> list[WithId]:
    """Reorder items: the first item of every module, then the second item of every module, and so on."""
    taken: Counter[str] = Counter()
    turns: list[int] = []
    for item in items:
        module = item.id.partition("#")[0]
        turns.append(taken[module])
        taken[module] += 1
    return [items[i] for i in sorted(range(len(items)), key=turns.__getitem__)]


def held_out_sides(
    held_out: Mapping[str, Sequence[WithId]], *, num_dev_rows: int, num_test_rows: int, seed: int
) -> dict[SplitName, list[WithId]]:
    """Assign each held-out module to dev or test by a hash of its name, in proportion to the requested rows.

    The assignment of a module does not change when other modules are added, removed or changed.
    """
    sides: dict[SplitName, list[WithId]] = {"dev": [], "test": []}
    for module, items in held_out.items():
        is_dev = unit_interval(seed, "dev-or-test", module) * (num_dev_rows + num_test_rows) < num_dev_rows
        sides["dev" if is_dev else "test"] += items
    return sides


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

    A text without any word is never found; the searched texts are read once.
    """
    waiting: dict[str, list[str]] = {}
    for text in texts:
        if words := _words(text):
            waiting.setdefault(" ".join(words), []).append(text)
    anchors: dict[tuple[str, ...], list[str]] = {}
    for wanted in waiting:
        anchors.setdefault(_anchor(wanted.split()), []).append(wanted)
    lengths = sorted({len(anchor) for anchor in anchors})
    matches: set[str] = set()
    for text in searched:
        words = _words(text)
        joined = " ".join(words)
        for length in lengths:
            # The empty n-gram occurs in every text.
            present = {()} if not length else set(zip(*(words[start:] for start in range(length)), strict=False))
            for anchor in anchors.keys() & present:
                matches.update(wanted for wanted in anchors[anchor] if wanted not in matches and wanted in joined)
    return {text for wanted in matches for text in waiting[wanted]}


def _words(text: str) -> list[str]:
    return _WORD.findall(clean(text).casefold())


def _anchor(words: list[str]) -> tuple[str, ...]:
    """Return consecutive inner words as lookup key: the first and last word of a text may match inside longer words."""
    inner = words[1:-1]
    length = min(_ANCHOR_WORDS, len(inner))
    starts = range(len(inner) - length + 1)
    place = max(starts, key=lambda start: sum(map(len, inner[start : start + length])))
    return tuple(inner[place : place + length])
