"""The task docs_library: which library does this passage document?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from bertline.corpus.python_docs import ModuleDocs
from bertline.tasks.docs_rows import balanced_order, held_out_sides
from bertline.tasks.package_names import LibraryNames
from bertline.tasks.pretrained_text import without_pretrained
from bertline.tasks.rows import LabelledRow, SourceRows
from bertline.tasks.source_config import DocsLibrarySourceConfig


def docs_library_rows(
    modules: Iterable[ModuleDocs], config: DocsLibrarySourceConfig, *, num_train_rows: int | None, seed: int
) -> SourceRows:
    """Passages labelled with the library they are from.

    A passage is a prose paragraph of a documentation string, without the names of any of the libraries, cut to
    `max_words`. Train passages come from modules that are pretrained on, dev and test passages from held-out ones, and
    none of these occurs in text that is pretrained on; dev and test share no module, and no passage occurs twice.
    Labels are balanced as far as the data goes: every library has the same number of rows until the small ones run out.

    Args:
        modules: From `bertline.corpus.python_docs.read_modules`.
        config: Sizes.
        num_train_rows: Rows to make for training; None makes all.
        seed: `split_seed` of the task.
    """
    modules = list(modules)
    without_names = cache(LibraryNames({module.package for module in modules}).removed_from)
    dropped: Counter[str] = Counter()
    seen: set[str] = set()
    train: list[LabelledRow] = []
    held_out: dict[str, list[LabelledRow]] = {}
    # Train modules first: of a passage that stands on both sides it is the held-out copy that goes.
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
            # Names can only make a passage shorter; most paragraphs are too short from the start.
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
