"""What the tasks made from documentation strings share: the split of the held-out modules, and balanced orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

from bertline.foundation.seeds import seed_for, unit_interval
from bertline.tasks.rows import LabelledRow

Item = TypeVar("Item")


def dev_or_test(module: str, *, num_dev_rows: int, num_test_rows: int, seed: int) -> Literal["dev", "test"]:
    """The side of a held-out module: by a hash of its name, in the proportion of the rows wanted.

    So a module stays on its side when others come, go or grow.

    Args:
        module: `torch.nn.functional`.
        num_dev_rows: Rows wanted in dev, over all packages.
        num_test_rows: Rows wanted in test.
        seed: `split_seed`.

    Example:
        >>> sides = [dev_or_test(f"a.x{n}", num_dev_rows=100, num_test_rows=200, seed=0) for n in range(300)]
        >>> sides.count("dev")
        99
    """
    return (
        "dev" if unit_interval(seed, "dev-or-test", module) * (num_dev_rows + num_test_rows) < num_dev_rows else "test"
    )


def balanced_order(rows: list[LabelledRow], *, seed: int, name: str) -> list[LabelledRow]:
    """A random order in which every prefix is balanced, as far as there are rows.

    Each round takes one row of every label that has rows left. Of a label, every module gives its first row before
    any gives its second, so that no large module stands for a library. The order is fixed by the seed, the name and
    the ids: rows that come or go leave the others in their order.

    Args:
        rows: With ids that begin with the module, `torch.nn.functional:linear`.
        seed: `split_seed`.
        name: Of the split; splits have independent orders.

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
    """The same rows, the first of every module first, then the second of every module, and so on."""
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
    """What the held-out modules give, by module, as dev and test: `dev_or_test` of each module."""
    sides: dict[Literal["dev", "test"], list[Item]] = {"dev": [], "test": []}
    for module, items in held_out.items():
        sides[dev_or_test(module, num_dev_rows=num_dev_rows, num_test_rows=num_test_rows, seed=seed)] += items
    return sides
