"""A public name means one thing: two modules that define it are listed here with the reason, or one is renamed."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "bertline"
# Why several modules may define a name, and which names.
SHARED = {"the program that each of these modules is": {"main"}, "a stage is called as what it makes": {"Tokenizer"}}


def public_names(module: ast.Module) -> Iterator[str]:
    """Functions, classes and constants at the top of a module, without a leading underscore."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))


def test_a_public_name_of_several_modules_is_listed_with_the_reason() -> None:
    modules = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for name in public_names(ast.parse(path.read_text(encoding="utf-8"))):
            modules[name].add(path.relative_to(SOURCE).as_posix())
    listed = set.union(*SHARED.values())
    shared = {name: sorted(where) for name, where in modules.items() if len(where) > 1}
    assert {name: where for name, where in shared.items() if name not in listed} == {}, "rename one, or say why here"
    assert listed - shared.keys() == set(), "defined once: take it from the list"


def test_the_names_of_the_glossary_are_those_of_source_and_configuration() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    named = {name.rpartition(".")[2] for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)*)`", glossary)}
    paths = [*SOURCE.rglob("*.py"), *(ROOT / "conf").rglob("*.yaml")]
    words = {word for path in paths for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    assert len(named) > 15
    assert named - words == set()
