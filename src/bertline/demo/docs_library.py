"""The task `docs_library`: predict which library a passage documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from bertline.demo.config import DocsLibrarySourceConfig
from bertline.demo.docstrings import ModuleDocs
from bertline.demo.package_names import LibraryNames
from bertline.demo.pretrained_text import without_pretrained
from bertline.demo.rows import balanced_order, held_out_sides
from bertline.tasks.rows import LabelledRow, SourceRows


def docs_library_rows(
    modules: Iterable[ModuleDocs], config: DocsLibrarySourceConfig, *, num_train_rows: int | None, seed: int
) -> SourceRows:
    """Build passages labelled with the library they come from.

    A passage is a prose paragraph of a docstring, without the names of the libraries, truncated to `max_words`. Train
    passages come from pretraining modules. Dev and test passages come from held-out modules and do not occur in
    pretraining text. Dev and test share no module, and no passage occurs twice. Labels are balanced as far as possible:
    every library contributes the same number of rows until small libraries run out.

    Args:
        modules: Modules from `bertline.demo.docstrings.read_modules`.
        config: Sizes of passages and splits.
        num_train_rows: Number of train rows; None returns all.
        seed: `split_seed` of the task.
    """
    modules = list(modules)
    without_names = cache(LibraryNames({module.package for module in modules}).removed_from)
    dropped: Counter[str] = Counter()
    seen: set[str] = set()
    train: list[LabelledRow] = []
    held_out: dict[str, list[LabelledRow]] = {}
    # Train modules first, so that of a passage on both sides the held-out copy is dropped.
    for module in sorted(modules, key=lambda module: module.held_out):
        rows = list(_passages(module, config, without_names, seen, dropped))
        if module.held_out:
            held_out[module.name] = rows
        else:
            train += rows
    held_out = without_pretrained(held_out, modules, lambda row: (row.text,), dropped, also_as=without_names)
    sides = held_out_sides(held_out, num_dev_rows=config.num_dev_rows, num_test_rows=config.num_test_rows, seed=seed)
    return SourceRows(
        balanced_order(train, seed=seed, name="train")[:num_train_rows],
        balanced_order(sides["dev"], seed=seed, name="dev")[: config.num_dev_rows],
        balanced_order(sides["test"], seed=seed, name="test")[: config.num_test_rows],
        dropped,
    )


def _passages(
    module: ModuleDocs,
    config: DocsLibrarySourceConfig,
    without_names: Callable[[str], str],
    seen: set[str],
    dropped: Counter[str],
) -> Iterator[LabelledRow]:
    for docstring in module.docstrings:
        for number, paragraph in enumerate(docstring.prose.paragraphs):
            # Removing names only shortens a passage, so paragraphs that are too short are not processed.
            long_enough = len(paragraph.split()) >= config.min_words
            words = without_names(paragraph).split()[: config.max_words] if long_enough else []
            row = LabelledRow(f"{module.name}#{docstring.name}:{number}", " ".join(words), None, module.package)
            if len(words) < config.min_words:
                dropped["too_few_words"] += 1
            elif row.content_key() in seen:
                dropped["repeated_passage"] += 1
            else:
                seen.add(row.content_key())
                yield row
