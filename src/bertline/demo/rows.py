"""Shared parts of the tasks built from docstrings: the split of held-out modules, and balanced orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

from bertline.foundation.seeds import seed_for, unit_interval
from bertline.tasks.rows import LabelledRow

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
