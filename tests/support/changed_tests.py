"""The tests that a change needs, by what they import: `make test-changed`.

    python changed_tests.py main           # the test files for what differs from where this branch left main

A test needs a file if its own file, a conftest.py above it, or anything that these import, directly or not, inside
functions too, is that file, or if a test or a recipe names it in a text ("bertline.sweep.run:work", "conf", "docs").
What runs whole pipelines is left to `make test`.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from bertline.run.fingerprints import _TEMPLATES, _imports

ROOT = Path(__file__).resolve().parents[2]
IMPORTED_FROM = ("src", "pipelines", "benchmarks", "tests/support", "docs")
OF_ALL_TESTS = {"tests/conftest.py", "pyproject.toml", "constraints.txt"}
LEFT_OUT = re.compile(r"tests/(processes|integration|browser|slurm|support|gpu)/|/slow/")
MODULE = re.compile(r"\bbertline(?:\.\w+)+")
PLACE = re.compile(r"(?:src|pipelines|benchmarks|conf|docs)(?:/[\w.-]+)*|[\w-]+\.(?:md|yaml)")


def tests_of(changed: set[str]) -> list[str]:
    """Test files that need one of the changed files, all as paths below the root."""
    tests = sorted(name for path in (ROOT / "tests").rglob("test_*.py") if not LEFT_OUT.search(name := _name(path)))
    return [name for name in tests if changed & (OF_ALL_TESTS | reached(ROOT / name))]


def reached(test: Path) -> set[str]:
    """The files that a test file needs, itself included."""
    waiting = [test, *(folder / "conftest.py" for folder in test.parents if ROOT / "tests" in folder.parents)]
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in found and path.is_file():
            found.add(path)
            waiting += needed(path) if path.suffix == ".py" else ()
    return {_name(path) for path in found}


@cache
def needed(path: Path) -> list[Path]:
    """The files that a Python file imports, has as data beside it, or names."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes, names = list(ast.walk(tree)), set(_imports(tree))
    beside = [file for kind in (*_TEMPLATES, "*.json", "*.csv") for file in path.parent.glob(kind)]
    if path.is_relative_to(ROOT / "src"):  # whose texts are messages and docstrings
        return beside + _files_of(names)
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            names |= {node.value} if PLACE.fullmatch(node.value) else set(MODULE.findall(node.value))
    return beside + _files_of(names)


def changed_since(base: str) -> set[str]:
    """Files that differ from where this branch left another one, also those that git does not know yet."""
    commands = (
        ["diff", "--name-only", f"{base}..."],
        ["diff", "--name-only", "HEAD"],
        ["ls-files", "-o", "--exclude-standard"],
    )
    told = [
        subprocess.run(["git", *command], cwd=ROOT, check=True, text=True, capture_output=True) for command in commands
    ]
    return {name for done in told for name in done.stdout.splitlines()}


def _files_of(names: set[str]) -> list[Path]:
    return [file for name in names for file in _files(name)]


@cache
def _files(name: str) -> list[Path]:
    """The file of a module, or those at or below a path."""
    if (path := ROOT / name).exists():
        return [*path.rglob("*")] if path.is_dir() else [path]
    ends = (f"{name.replace('.', '/')}{end}" for end in (".py", "/__init__.py"))
    return [path for end in ends for folder in IMPORTED_FROM for path in (ROOT / folder).glob(end)]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


if __name__ == "__main__":
    print(*tests_of(changed_since(sys.argv[1])), sep="\n")
