"""Faults planted in src, one at a time in a clone, and how many of them the tests of `make test-changed` miss.

    python planted_faults.py 20 --seed 0

A fault turns one comparison, operation, number, or truth value of a function into another. Where the tests that need
the file pass, the whole of `make test` is run: what fails only then was missed, what never fails has no test.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import changed_tests

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
LONGEST_S = 1800


def with_fault(text: str, chance: random.Random) -> tuple[str, str] | None:
    """A module with a fault, and where and what it is; None where there is nothing to change."""
    tree = ast.parse(text)
    inside = [
        node for function in ast.walk(tree) if isinstance(function, ast.FunctionDef) for node in ast.walk(function)
    ]
    places = [node for node in inside if isinstance(node, ast.Compare | ast.BinOp | ast.BoolOp) or _is_number(node)]
    chance.shuffle(places)
    for node in places:
        before = ast.unparse(node)
        if isinstance(node, ast.Constant):
            node.value = not node.value if isinstance(node.value, bool) else node.value + 1
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
            node.ops[0] = SWAPPED[type(node.ops[0])]()  # type: ignore[assignment]
        elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPPED:
            node.op = SWAPPED[type(node.op)]()  # type: ignore[assignment]
        else:
            continue
        return ast.unparse(tree), f"line {node.lineno}: {before} -> {ast.unparse(node)}"
    return None


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def fails(clone: Path, tests: list[str]) -> bool:
    """Whether one of these tests fails in the clone; no names are all of `make test`."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "auto", "--dist", "worksteal", *tests]
    environment = {**os.environ, "PYTHONPATH": str(clone / "src"), "OMP_NUM_THREADS": "1"}
    try:
        return (
            subprocess.run(command, cwd=clone, env=environment, capture_output=True, timeout=LONGEST_S).returncode != 0
        )
    except subprocess.TimeoutExpired:
        return True


def main() -> None:
    """Plant the faults and print what became of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    chance, ends = random.Random(asked.seed), Counter[str]()
    with tempfile.TemporaryDirectory() as temporary:
        clone = Path(temporary) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(changed_tests.ROOT), str(clone)], check=True)
        files = sorted((clone / "src").rglob("*.py"))
        while ends.total() < asked.count:
            path = chance.choice(files)
            text = path.read_text(encoding="utf-8")
            if (planted := with_fault(text, chance)) is None:
                continue
            path.write_text(planted[0], encoding="utf-8")
            name = path.relative_to(clone).as_posix()
            tests = changed_tests.tests_of({name})
            end = "found" if tests and fails(clone, tests) else "missed" if fails(clone, []) else "no test finds it"
            path.write_text(text, encoding="utf-8")
            ends[end] += 1
            print(f"{end}: {name} {planted[1]} ({len(tests)} files of tests)", flush=True)
    print(dict(ends))


if __name__ == "__main__":
    main()
