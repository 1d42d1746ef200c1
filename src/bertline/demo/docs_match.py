"""The task `docs_match`: predict whether a summary belongs to a function."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from bertline.demo.config import DocsMatchSourceConfig
from bertline.demo.docstrings import Docstring, ModuleDocs
from bertline.demo.rows import first_rows, functions_kept, items_by_side, ordered_splits, summary_and_rest
from bertline.foundation.seeds import generator
from bertline.tasks.rows import LabelledRow, SourceRows

MATCH, MISMATCH = "match", "mismatch"


@dataclass(frozen=True, slots=True)
class _Function:
    id: str
    signature: str
    summary: str


def docs_match_rows(
    modules: Iterable[ModuleDocs], config: DocsMatchSourceConfig, *, num_train_rows: int | None, seed: int
) -> SourceRows:
    """Build pairs of a signature, such as `read_csv(filepath, sep, header)`, and its own or another summary.

    Each function occurs in two rows, once with its own summary and once with that of another function of its module,
    and so does each summary. Neither the signature nor the summary alone predicts the label. Summaries that name their
    function (`Read_csv reads ...`) and repetitions of a summary are dropped. Train pairs come from pretraining modules.
    Dev and test pairs come from held-out modules, and their summaries do not occur in pretraining text. Dev and test
    share no module.

    Args:
        modules: Modules from `bertline.demo.docstrings.read_modules`.
        config: Sizes of summaries and splits.
        num_train_rows: Number of train rows; None returns all.
        seed: `split_seed` of the task.
    """
    dropped: Counter[str] = Counter()
    seen: set[str] = set()
    train, held_out = items_by_side(
        list(modules),
        lambda module: functions_kept(module, lambda each: _function(module, each, config.min_words, seen), dropped),
        lambda function: (function.summary,),
        dropped,
    )
    pairs, held_out_pairs = (_rows(functions, dropped, seed) for functions in (train, held_out))
    ordered = ordered_splits(pairs, held_out_pairs, config, lambda row: row.label, seed=seed)
    rows = first_rows(ordered, config, num_train_rows)
    return SourceRows(rows["train"], rows["dev"], rows["test"], dropped)


def _rows(functions: dict[str, list[_Function]], dropped: Counter[str], seed: int) -> dict[str, list[LabelledRow]]:
    """Return the pairs of each module. A module with a single function is dropped: it has no mismatch."""
    if alone := sum(len(each) == 1 for each in functions.values()):
        dropped["only_function_of_its_module"] += alone
    return {name: _paired(each, name, seed) for name, each in functions.items() if len(each) > 1}


def _function(module: ModuleDocs, docstring: Docstring, min_words: int, seen: set[str]) -> _Function | str:
    """Return a function with its summary, or the reason to drop it."""
    own_name = docstring.name.rpartition(".")[2]
    summary, _ = summary_and_rest(docstring)
    if own_name.startswith("_"):
        return "private_function"
    if not summary:
        return "no_prose"
    if len(summary.split()) < min_words:
        return "too_few_words"
    if re.search(rf"(?<!\w){re.escape(own_name)}(?!\w)", summary, re.IGNORECASE):
        return "summary_names_function"
    if summary.casefold() in seen:
        return "repeated_summary"
    seen.add(summary.casefold())
    signature = f"{docstring.name}({', '.join(docstring.parameters)})"
    return _Function(f"{module.name}#{docstring.name}", signature, summary)


def _paired(functions: list[_Function], module: str, seed: int) -> list[LabelledRow]:
    """Pair each function with its own summary and with that of the next function in a random cyclic order."""
    order = [functions[i] for i in generator(seed, "mismatch", module).permutation(len(functions))]
    return [
        LabelledRow(f"{function.id}:{label}", function.signature, summary, label, module)
        for function, other in zip(order, order[1:] + order[:1], strict=True)
        for label, summary in ((MATCH, function.summary), (MISMATCH, other.summary))
    ]
