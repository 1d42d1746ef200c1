"""What the tasks made from documentation strings share: the split of the held-out modules, and balanced orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal

from bertline.foundation.seeds import generator, seed_for
from bertline.tasks.rows import LabelledRow


def held_out_sides(
    sizes: Mapping[str, int], *, num_dev_rows: int, num_test_rows: int, seed: int
) -> dict[str, Literal["dev", "test"]]:
    """Give each held-out module of one package to dev or to test, in the proportion of the rows wanted.

    Modules are taken in an order shuffled by the seed; each goes to the side that is further behind its share.

    Args:
        sizes: Candidate rows of each module.
        num_dev_rows: Rows wanted in dev, over all packages.
        num_test_rows: Rows wanted in test.
        seed: `split_seed`.

    Example:
        >>> sides = held_out_sides({"a.x": 10, "a.y": 10, "a.z": 10}, num_dev_rows=100, num_test_rows=200, seed=0)
        >>> sorted(sides.values())
        ['dev', 'test', 'test']
    """
    wanted = {"dev": num_dev_rows, "test": num_test_rows}
    filled = {"dev": 0, "test": 0}
    sides: dict[str, Literal["dev", "test"]] = {}
    for module in sorted(sizes, key=lambda name: (seed_for(seed, "dev-or-test", name), name)):
        side: Literal["dev", "test"] = (
            "test" if filled["test"] * wanted["dev"] <= filled["dev"] * wanted["test"] else "dev"
        )
        sides[module] = side
        filled[side] += sizes[module]
    return sides


def balanced_order(rows: list[LabelledRow], *, seed: int, name: str) -> list[LabelledRow]:
    """A random order in which every prefix is balanced, as far as there are rows.

    Each round takes one row of every label that has rows left. Of a label, every module gives its first row before
    any gives its second, so that no large module stands for a library. The order is fixed by the seed and the name.

    Args:
        rows: With ids that begin with the module, `torch.nn.functional:linear`.
        seed: `split_seed`.
        name: Of the split; splits have independent orders.

    Example:
        >>> rows = [LabelledRow(f"m:{number}", "text", None, "ab"[number % 4 > 0]) for number in range(8)]
        >>> [row.label for row in balanced_order(rows, seed=0, name="train")[:4]].count("a")
        2
    """
    random = generator(seed, "order", name)
    by_label: dict[str, list[LabelledRow]] = {}
    for row in sorted(rows, key=lambda row: row.id):
        by_label.setdefault(row.label, []).append(row)
    spread = [
        _spread_over_modules([by_label[label][i] for i in random.permutation(len(by_label[label]))])
        for label in sorted(by_label)
    ]
    ordered: list[LabelledRow] = []
    for place in range(max(map(len, spread), default=0)):
        one_of_each = [candidates[place] for candidates in spread if place < len(candidates)]
        ordered += [one_of_each[i] for i in random.permutation(len(one_of_each))]
    return ordered


def _spread_over_modules(rows: list[LabelledRow]) -> list[LabelledRow]:
    """The same rows, the first of every module first, then the second of every module, and so on."""
    taken: Counter[str] = Counter()
    turns: list[int] = []
    for row in rows:
        module = row.id.partition(":")[0]
        turns.append(taken[module])
        taken[module] += 1
    return [rows[i] for i in sorted(range(len(rows)), key=lambda i: turns[i])]


def held_out_rows(
    held_out: Mapping[str, Mapping[str, list[LabelledRow]]], *, num_dev_rows: int, num_test_rows: int, seed: int
) -> dict[Literal["dev", "test"], list[LabelledRow]]:
    """The held-out rows as dev and test, by package and module: `held_out_sides` of each package."""
    sides: dict[Literal["dev", "test"], list[LabelledRow]] = {"dev": [], "test": []}
    for by_module in held_out.values():
        sizes = {name: len(rows) for name, rows in by_module.items()}
        chosen = held_out_sides(sizes, num_dev_rows=num_dev_rows, num_test_rows=num_test_rows, seed=seed)
        for name, rows in by_module.items():
            sides[chosen[name]] += rows
    return sides
