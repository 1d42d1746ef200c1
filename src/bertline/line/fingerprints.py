"""Code as a dependency by meaning: a comment never re-runs a stage, a changed formula always does.

The fingerprint of a stage covers the syntax trees, without docstrings and comments, of every bertline module that
the stage's entry modules import, directly or not, at the top of a file or inside a function, and what they show that
lies beside them: templates (HTML, CSS) and reference curves.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

from bertline.foundation.files import sha256_of_file
from bertline.line.stages import Stage

_PACKAGE = "bertline"
_TEMPLATES = ("*.html", "*.css", "reference_curves/*.json")
# These say things to people or keep records; what they do cannot change a result.
_WITHOUT_MEANING = frozenset(
    {
        "bertline",
        "bertline.foundation.errors",
        "bertline.foundation.progress",
        "bertline.foundation.validation",
        "bertline.training.progress",
    }
)


def code_fingerprint(stage: Stage, *, source: Path | None = None) -> dict[str, str]:
    """Digest every module that a stage's result depends on.

    Args:
        stage: The stage.
        source: The folder that holds the package `bertline`; by default the one this module was loaded from.

    Returns:
        Module name to digest, sorted by name. Names are part of it, so that a person sees what changed.
    """
    root = source or Path(__file__).resolve().parents[2]
    reached: dict[str, str] = {}
    waiting = list(stage.modules)
    while waiting:
        module = waiting.pop()
        if module in reached or module in _WITHOUT_MEANING:
            continue
        path = _path_of(module, root)
        if path is None:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        waiting.extend(_imports(tree))
        _drop_docstrings(tree)
        reached[module] = hashlib.sha256(_canonical(tree).encode()).hexdigest()[:16]
        for template in (file for suffix in _TEMPLATES for file in path.parent.glob(suffix)):
            reached[f"{module.rpartition('.')[0]}/{template.name}"] = sha256_of_file(template)[:16]
    return dict(sorted(reached.items()))


def _path_of(module: str, root: Path) -> Path | None:
    base = root.joinpath(*module.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.exists():
            return candidate
    return None


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == _PACKAGE)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == _PACKAGE:
            yield node.module
            # `from package import module` names a module; a function's name is no path and is passed over.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _drop_docstrings(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            # A bare string anywhere in a body is documentation: attribute docstrings stand below their attribute.
            node.body = [
                statement
                for statement in node.body
                if not (
                    isinstance(statement, ast.Expr)
                    and isinstance(statement.value, ast.Constant)
                    and isinstance(statement.value.value, str)
                )
            ]


def _canonical(node: object) -> str:
    """Like `ast.dump`, but the same on every Python version: empty fields, which come and go, are left out."""
    if isinstance(node, ast.AST):
        fields = ((name, getattr(node, name, None)) for name in node._fields if name not in ("ctx", "type_comment"))
        inside = ",".join(f"{name}={_canonical(value)}" for name, value in fields if value not in (None, [], ""))
        return f"{type(node).__name__}({inside})"
    if isinstance(node, list):
        return "[" + ",".join(_canonical(item) for item in node) + "]"
    return repr(node)
