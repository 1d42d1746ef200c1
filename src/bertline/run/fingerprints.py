"""Fingerprints of code: a changed comment never re-runs a stage, a changed formula always does.

The fingerprint of a stage covers the syntax trees, without docstrings and comments, of `build` in its file
(`stages/NAME.py`) and of every bertline module that this imports, directly or not, at the top of a file or inside a
function. Of a kind of task it covers what the stage uses (`MEMBERS_OF_STAGES`): a changed report leaves the sweep
alone. That of a stage of one task covers the kind of this task and no other: a new baseline re-runs the sweeps that
have it. The fingerprint also covers the files next to these modules that they use: templates.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bertline.foundation.files import sha256_of_file
from bertline.stages.base import Stage

_SOURCE = Path(__file__).resolve().parents[2]
_TEMPLATES = ("*.html", "templates/*")
_STAGES = "bertline.stages."
# These modules print messages, validate, or keep records, which cannot change a result.
_WITHOUT_MEANING = frozenset({
    "bertline", "bertline.config", "bertline.foundation.errors", "bertline.foundation.progress",
    "bertline.foundation.validation", "bertline.stages.base", "bertline.training.environment",
    "bertline.training.progress",
})  # fmt: skip
# The command line hands over a configuration, which is a dependency of its own; tracking keeps
# records.
_PACKAGES_WITHOUT_MEANING = ("bertline.cli.", "bertline.tracking.")
_KINDS, _REGISTRY = "bertline.kinds.", "bertline.kinds.registry"
MEMBERS_OF_STAGES: dict[str, tuple[str, ...]] = {
    "task_data": ("build",),
    "sweep": ("baselines",),
    "evaluate": ("stored_rows", "asks", "error_block"),
    "export": ("usage", "answers", "file_columns", "may_be_empty", "output_schema", "file_inputs", "serve",
               "file_outputs", "file_output"),
}  # fmt: skip
"""Members of a `TaskKind` that only this stage (and the command line) uses; the others are those of the model."""
_ROWS = "task_data"
# What makes rows uses nothing of these; the rest of a kind does.
_ABOVE_ROWS = tuple(
    f"bertline.{name}." for name in ("baselines", "encoders", "encoding", "linear", "modeling", "training")
)


def code_fingerprint(stage: Stage, kind: str | None = None, *, source: Path | None = None) -> dict[str, str]:
    """Return a digest of every module that a stage's result depends on, by its name.

    Args:
        stage: The stage.
        kind: The kind of its task, if it is run once for each.
        source: The folder that holds the package `bertline`; by default the one this module was loaded from.
    """
    own = []
    if kind is not None:
        from bertline.kinds.registry import kind_named  # which loads numpy

        own = [base.__module__ for base in kind_named(kind).__mro__]
    return _closure([type(stage).__module__, *own], source or _SOURCE, stage.name, own)


def reader_fingerprint() -> str:
    """Return a digest of the code that reads documentation strings."""
    return hashlib.sha256(json.dumps(_closure(["bertline.demo.docstrings"], _SOURCE, "corpus")).encode()).hexdigest()


def _closure(waiting: list[str], root: Path, stage: str, own_kind: Sequence[str] = ()) -> dict[str, str]:
    """Return the digests of modules and all that they import; of the kinds of tasks, `own_kind` if it has any."""
    reached: dict[str, str] = {}
    while waiting:
        module = waiting.pop()
        if module in _WITHOUT_MEANING or module.startswith(_PACKAGES_WITHOUT_MEANING) or module in reached:
            continue
        if (stage == _ROWS and module.startswith(_ABOVE_ROWS)) or (own_kind and module == _REGISTRY):
            continue
        base = root.joinpath(*module.split("."))
        path = next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.exists()), None)
        if path is None or module.split(".")[0] != "bertline":
            continue
        of_stage = stage if module.startswith(_KINDS) else _STAGES if module.startswith(_STAGES) else None
        is_own = not own_kind or module in own_kind
        reached[module], imports = _read(path.read_text(encoding="utf-8"), of_stage, is_own)
        waiting.extend(imports)
        for template in (file for suffix in _TEMPLATES for file in path.parent.glob(suffix)):
            reached[f"{module.rpartition('.')[0]}/{template.name}"] = sha256_of_file(template)[:16]
    return dict(sorted(reached.items()))


def syntax_digest(tree: ast.AST) -> str:
    """Digest what code does, not how it is written or explained.

    Versions of Python write down syntax differently; a stage's identity has the version, too.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not _is_docstring(statement)]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


@cache  # most modules are part of several stages
def _read(text: str, stage: str | None, is_own: bool) -> tuple[str, tuple[str, ...]]:
    tree = ast.parse(text)
    if stage == _STAGES:
        _keep_build(tree)
    elif stage is not None:
        _keep_used(tree, stage, is_own)
    return syntax_digest(tree), tuple(_imports(tree))


def _keep_used(tree: ast.Module, stage: str, is_own: bool) -> None:
    """Remove from a file of `kinds`, in place, the members of kinds that the stage does not use (all of
    `MEMBERS_OF_STAGES` where not `is_own`), and then the private definitions and the imports that nothing mentions."""
    own = {*MEMBERS_OF_STAGES.get(stage, ())} if is_own else set()
    of_others = {member for members in MEMBERS_OF_STAGES.values() for member in members} - own
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in classes:
        is_kind = node.name == "TaskKind" or any("config_class" in _defined(member) for member in node.body)
        if stage == _ROWS and is_kind:
            node.body = [member for member in node.body if _defined(member) & {*own, "config_class"}]
        node.body = [member for member in node.body if not _defined(member) & of_others]
    bodies = [tree.body, *(node.body for node in classes)]
    # The members of a class count by themselves, so it mentions what its head does.
    heads: dict[ast.stmt, list[Any]] = {node: [*node.bases, *node.decorator_list] for node in classes}
    _drop_unmentioned(bodies, [part for body in bodies for part in body if _is_private(part)], heads)


def _keep_build(tree: ast.Module) -> None:
    """Remove from the file of a stage, in place, all that `build` does not mention: people alone see it."""
    stages = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in stages:
        node.body = [member for member in node.body if _defined(member) == {"build"}]
    if any(node.body for node in stages):
        _drop_unmentioned([tree.body], [part for part in tree.body if part not in stages], {})


def _drop_unmentioned(
    bodies: Sequence[list[ast.stmt]], unused: list[ast.stmt], heads: Mapping[ast.stmt, list[Any]]
) -> None:
    """Remove those of `unused` parts that no other part mentions; some parts mention what their `heads` do alone."""
    used = [part for body in bodies for part in body if part not in unused]
    mentioned: set[str] = set()
    while used:
        nodes = [node for part in used for each in heads.get(part, [part]) for node in ast.walk(each)]
        mentioned |= {node.id for node in nodes if isinstance(node, ast.Name)}
        mentioned |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        used = [part for part in unused if _defined(part) & mentioned]
        unused = [part for part in unused if part not in used]
    for body in bodies:
        body[:] = [part for part in body if part not in unused]


def _is_private(statement: ast.stmt) -> bool:
    """Return whether a statement matters only where what it defines is mentioned in the same file."""
    names = _defined(statement)
    private = all(name.startswith("_") and not name.startswith("__") for name in names)
    return isinstance(statement, ast.Import | ast.ImportFrom) or (bool(names) and private)


def _defined(statement: ast.stmt) -> set[str]:
    """Return the names that a statement defines."""
    match statement:
        case ast.FunctionDef() | ast.ClassDef():
            return {statement.name}
        case ast.Import() | ast.ImportFrom():
            return {alias.asname or alias.name for alias in statement.names}
        case ast.Assign() | ast.AnnAssign():
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    return set()


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield the names of all modules that are imported, but not for types alone; what has no path is skipped later."""
    checks = (
        node for node in ast.walk(tree) if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    )
    for_types = {inner for check in checks for part in check.body for inner in ast.walk(part)}
    for node in {*ast.walk(tree)} - for_types:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            # `from package import module` imports a module; the name of a function has no path and
            # is skipped.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_docstring(node: object) -> bool:
    """Return whether a statement is a bare string, which is documentation anywhere: of attributes, after them."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
