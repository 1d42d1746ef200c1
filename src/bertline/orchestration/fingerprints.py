"""Fingerprints of code: a changed comment never re-runs a stage, a changed formula always does.

The fingerprint of a stage covers the syntax trees, without docstrings and comments, of its recipe
(`pipelines/STAGE.py`), of the modules that turn its configuration into work, and of every bertline module that these
import, directly or not, at the top of a file or inside a function. A part of a task kind that is imported on demand is
followed too: `kind_part(kind, "model")` stands for `kinds/NAME/model.py` of every kind. The fingerprint also covers the
files next to these modules that they use: templates (HTML, CSS) and reference curves.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bertline.foundation.files import sha256_of_file
from bertline.orchestration.stages import Stage

_SOURCE = Path(__file__).resolve().parents[2]
_PACKAGE = "bertline"
_TEMPLATES = ("*.html", "*.css", "reference_curves/*.json")
_RECIPES = "pipelines"
# These modules print messages, validate, or keep records, which cannot change a result. Those of `line` open, run and
# record every stage in the same way: a recipe imports them, and their own imports are not followed.
_WITHOUT_MEANING = frozenset(
    {
        "bertline",
        "bertline.foundation.errors",
        "bertline.foundation.progress",
        "bertline.foundation.validation",
        "bertline.orchestration.config",
        "bertline.orchestration.stage_run",
        "bertline.orchestration.provenance",
        "bertline.orchestration.run_pages",
        "bertline.orchestration.stages",
        "bertline.orchestration.stopping",
        "bertline.orchestration.versions",
        "bertline.training.progress",
        "mistyped",
        "on_ctrl_c",
    }
)
_RECORDS = "bertline.tracking."
_KIND_PART = "kind_part"
_EVERY_KIND = "bertline.kinds.*."


def code_fingerprint(stage: Stage, *, source: Path | None = None) -> dict[str, str]:
    """Digest every module that a stage's result depends on.

    Args:
        stage: The stage.
        source: The folder that holds the package `bertline`, next to `pipelines`; by default the one this module was
            loaded from.

    Returns:
        Digests by name of a module or path of a recipe, sorted. The names are included so that a person can see what
        changed.
    """
    return _closure([stage.name, *stage.modules], source or _SOURCE)


def reader_fingerprint() -> str:
    """Return a digest of the code that reads documentation strings."""
    return hashlib.sha256(json.dumps(_closure(["bertline.demo.docstrings"], _SOURCE)).encode()).hexdigest()


def _closure(waiting: list[str], root: Path) -> dict[str, str]:
    # An installed wheel has no recipes next to it; those in the working directory are used.
    recipes = root.parent / _RECIPES if (root.parent / _RECIPES).is_dir() else Path(_RECIPES)
    reached: dict[str, str] = {}
    while waiting:
        module = waiting.pop()
        if module in _WITHOUT_MEANING or module.startswith(_RECORDS):
            continue
        of_package = module.split(".")[0] == _PACKAGE
        path = _path_of(module, root if of_package else recipes)
        if path is None:
            continue
        key = module if of_package else f"{_RECIPES}/{path.name}"
        if key in reached:
            continue
        reached[key], imports = _read(path.read_text(encoding="utf-8"))
        for name in imports:
            if name.startswith(_EVERY_KIND):
                waiting.extend(_parts_of_kinds(name.removeprefix(_EVERY_KIND), root))
            elif not of_package or name.split(".")[0] == _PACKAGE:
                waiting.append(name)
        if of_package:
            for template in (file for suffix in _TEMPLATES for file in path.parent.glob(suffix)):
                reached[f"{module.rpartition('.')[0]}/{template.name}"] = sha256_of_file(template)[:16]
    return dict(sorted(reached.items()))


def syntax_digest(tree: ast.AST) -> str:
    """Digest what code does, not how it is written or explained; docstrings are taken out of `tree`.

    The digest of a source is the same on every Python version that bertline supports.
    """
    _drop_docstrings(tree)
    return hashlib.sha256(_canonical(tree).encode()).hexdigest()[:16]


@cache  # most modules are part of several stages
def _read(text: str) -> tuple[str, tuple[str, ...]]:
    tree = ast.parse(text)
    return syntax_digest(tree), tuple(_imports(tree))


def _parts_of_kinds(part: str, root: Path) -> list[str]:
    return [f"bertline.kinds.{path.parent.name}.{part}" for path in sorted(root.glob(f"bertline/kinds/*/{part}.py"))]


def _path_of(module: str, root: Path) -> Path | None:
    base = root.joinpath(*module.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.exists():
            return candidate
    return None


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield the names of all imported modules; those outside bertline and the recipes have no path and are skipped."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            # `from package import module` imports a module; the name of a function has no path and is skipped.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == _KIND_PART:
            part = node.args[1]
            assert isinstance(part, ast.Constant) and isinstance(part.value, str), "the part must be a literal"
            yield f"{_EVERY_KIND}{part.value}"


def _drop_docstrings(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            # A bare string anywhere in a body is documentation: attribute docstrings follow their attribute.
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
    """Return a dump like `ast.dump`, but the same on every Python version: empty optional fields are left out."""
    if isinstance(node, ast.Constant):
        # The value is not an optional field: None, "" and 0 are three values. `ascii`, because the characters that
        # `repr` escapes depend on the version's Unicode tables.
        return f"Constant({node.value!a})"
    if isinstance(node, ast.JoinedStr):
        return f"JoinedStr({_canonical(_without_empty_text(node.values))})"
    if isinstance(node, ast.AST):
        fields = ((name, getattr(node, name, None)) for name in node._fields if name not in ("ctx", "type_comment"))
        inside = ",".join(f"{name}={_canonical(value)}" for name, value in fields if value is not None and value != [])
        return f"{type(node).__name__}({inside})"
    if isinstance(node, list):
        return "[" + ",".join(_canonical(item) for item in node) + "]"
    return ascii(node)


def _without_empty_text(values: list[ast.expr]) -> list[ast.expr]:
    """Return the parts of an f-string; some Python versions append an empty text to the last one."""
    return [value for value in values if not (isinstance(value, ast.Constant) and value.value == "")]
