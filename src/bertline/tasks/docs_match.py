"""The task docs_match: does this summary belong to this function?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bertline.corpus.python_docs import Docstring, ModuleDocs, prose_paragraphs
from bertline.foundation.seeds import generator
from bertline.tasks.docs_rows import balanced_order, held_out_sides
from bertline.tasks.rows import LabelledRow, SourceRows
from bertline.tasks.source_config import DocsMatchSourceConfig

MATCH, MISMATCH = "match", "mismatch"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class _Function:
    id: str
    signature: str
    summary: str


def docs_match_rows(
    modules: Iterable[ModuleDocs], config: DocsMatchSourceConfig, *, num_train_rows: int | None, seed: int
) -> SourceRows:
    """Pairs of a signature, `read_csv(filepath, sep, header)`, and a summary, its own or another's.

    Each function stands in two rows, once with its own summary and once with that of another function of its module,
    and so does each summary: neither the signature alone nor the summary alone says anything about the label. A
    summary that names its function (`Read_csv reads ...`) is left out; so is one that two functions share. Train pairs
    come from modules that are pretrained on, dev and test pairs from held-out ones; dev and test share no module.

    Args:
        modules: From `bertline.corpus.python_docs.read_modules`.
        config: Sizes.
        num_train_rows: Rows to make for training; None makes all.
        seed: `split_seed` of the task.
    """
    dropped: Counter[str] = Counter()
    seen: set[str] = set()
    train: list[LabelledRow] = []
    held_out: dict[str, list[LabelledRow]] = {}
    # Train modules first, as in docs_library: no test summary was pretrained on.
    for module in sorted(modules, key=lambda module: module.held_out):
        functions = list(_functions(module, config, seen, dropped))
        if len(functions) == 1:
            dropped["only_function_of_its_module"] += 1
            continue
        rows = _paired(functions, module.name, seed)
        if module.held_out:
            held_out[module.name] = rows
        else:
            train += rows
    sizes = {name: len(rows) for name, rows in held_out.items()}
    chosen = held_out_sides(sizes, num_dev_rows=config.num_dev_rows, num_test_rows=config.num_test_rows, seed=seed)
    dev = [row for name, rows in held_out.items() if chosen[name] == "dev" for row in rows]
    test = [row for name, rows in held_out.items() if chosen[name] == "test" for row in rows]
    return SourceRows(
        balanced_order(train, seed=seed, name="train")[:num_train_rows],
        balanced_order(dev, seed=seed, name="dev")[: config.num_dev_rows],
        balanced_order(test, seed=seed, name="test")[: config.num_test_rows],
        dropped,
    )


def _functions(
    module: ModuleDocs, config: DocsMatchSourceConfig, seen: set[str], dropped: Counter[str]
) -> Iterator[_Function]:
    for docstring in module.docstrings:
        if docstring.kind != "function":
            continue
        summary = _summary(docstring)
        key = summary.casefold()
        reason = _reason_to_drop(docstring.name, summary, config.min_words)
        if reason is None and key in seen:
            reason = "repeated_summary"
        if reason is not None:
            dropped[reason] += 1
            continue
        seen.add(key)
        signature = f"{docstring.name}({', '.join(docstring.parameters)})"
        yield _Function(f"{module.name}:{docstring.name}", signature, summary)


def _summary(docstring: Docstring) -> str:
    """The first sentence of the first prose paragraph; empty where there is no prose."""
    paragraphs = prose_paragraphs(docstring.text).paragraphs
    return _SENTENCE_END.split(paragraphs[0], maxsplit=1)[0] if paragraphs else ""


def _reason_to_drop(name: str, summary: str, min_words: int) -> str | None:
    own_name = name.rpartition(".")[2]
    if own_name.startswith("_"):
        return "private_function"
    if not summary:
        return "no_prose"
    if len(summary.split()) < min_words:
        return "too_few_words"
    if re.search(rf"(?<!\w){re.escape(own_name)}(?!\w)", summary, re.IGNORECASE):
        return "summary_names_function"
    return None


def _paired(functions: list[_Function], module: str, seed: int) -> list[LabelledRow]:
    """Each function with its own summary, and with that of the next one in a ring of random order."""
    order = [functions[i] for i in generator(seed, "mismatch", module).permutation(len(functions))]
    rows: list[LabelledRow] = []
    for function, other in zip(order, order[1:] + order[:1], strict=True):
        for label, summary in ((MATCH, function.summary), (MISMATCH, other.summary)):
            rows.append(LabelledRow(f"{function.id}#{label}", function.signature, summary, label))
    return rows
