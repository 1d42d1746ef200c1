"""Documentation strings of installed Python packages: found as files, read with `ast`, never imported.

The split of `read_modules` is the one split of the default data: the corpus validates on `held_out` modules, and the
tasks made from the same packages take dev and test rows from them.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import importlib.util
import inspect
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from bertline.corpus.config import PackageConfig, PythonDocsConfig
from bertline.corpus.docstring_prose import Prose, prose_paragraphs
from bertline.corpus.storage import KIND
from bertline.foundation.errors import ConfigError, DataError
from bertline.foundation.files import kept_json, read_json
from bertline.foundation.manifests import MANIFEST_NAME
from bertline.foundation.parallel import ordered_map
from bertline.foundation.seeds import unit_interval

__all__ = ["Docstring", "ModuleDocs", "Prose", "docstrings_kept_in", "package_versions", "read_modules"]

STANDARD_LIBRARY = "python"
_NOT_OF_THE_LIBRARY = {"site-packages", "dist-packages"}
_TEST_PARTS = {"test", "tests"}
_FILES_A_BATCH = 40


@dataclass(frozen=True)
class Docstring:
    """One documentation string."""

    name: str
    """Qualified name inside the module (`Linear.forward`); empty for the module itself."""
    kind: Literal["module", "class", "function"]
    parameters: tuple[str, ...]
    """Names of the parameters without self and cls; those of `__init__` for a class."""
    text: str
    """As `inspect.cleandoc` leaves it: no common indentation, no blank lines around."""

    @cached_property
    def prose(self) -> Prose:
        """Its prose paragraphs, found once: the processes that read files do so, and it travels with the rest."""
        return prose_paragraphs(self.text)


@dataclass(frozen=True, slots=True)
class ModuleDocs:
    """The documentation strings of one module, in source order."""

    package: str
    """`PackageConfig.module`."""
    name: str
    """`torch.nn.functional`."""
    group: str
    """`torch.nn.modules`; see `group_of`."""
    held_out: bool
    """True: validation, dev and test only. False: training only."""
    docstrings: tuple[Docstring, ...]


@dataclass(frozen=True, slots=True)
class _ModuleFile:
    package: str
    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class _ReadFile:
    docstrings: tuple[Docstring, ...]
    problem: str | None


@dataclass(frozen=True, slots=True)
class _Batch:
    files: list[_ModuleFile]
    kept: Path | None
    """Where its docstrings are kept; None: nowhere."""
    reader: str


_KEPT_IN: ContextVar[tuple[Path, str] | None] = ContextVar("kept_in", default=None)


@contextmanager
def docstrings_kept_in(folder: Path, *, reader: str) -> Iterator[None]:
    """In this block `read_modules` keeps the documentation strings that it finds, and takes what is kept.

    Five stages of the default pipeline read the same packages, and parsing takes longer than all else that most of them
    do. What is kept counts only for files with the same bytes, the same Python and the same reader; it is kept by
    batches of a package's files, and a batch in which one has changed is read again.

    Args:
        folder: Where they are kept: some 60 MB for the default packages.
        reader: Fingerprint of the code that finds docstrings and their prose.
    """
    token = _KEPT_IN.set((folder, f"{reader} {sys.version}"))
    try:
        yield
    finally:
        _KEPT_IN.reset(token)


def read_modules(
    config: PythonDocsConfig, *, num_workers: int = 1, dropped: Counter[str] | None = None
) -> Iterator[ModuleDocs]:
    """Read all modules of the configured packages that have a documentation string, in a fixed order.

    Order: packages as configured, modules by name. Test folders (`tests`, `test`, `test_*`, `conftest`) are left out:
    their strings describe checks, not the library.

    Args:
        config: The packages and their split.
        num_workers: Processes that parse; the result does not depend on it.
        dropped: Counts, where given, the modules left out: `test_module`, `unparsable`, `undecodable`, `no_docstring`.

    Raises:
        ConfigError: A package is not installed.
    """
    dropped = Counter() if dropped is None else dropped
    roots = {package.module: _locate(package) for package in config.packages}
    folder, reader = _KEPT_IN.get() or (None, "")
    batches: list[_Batch] = []
    for module, root in roots.items():
        files = _module_files(module, root, dropped)
        for start in range(0, len(files), _FILES_A_BATCH):
            kept = folder / f"{module}-{start:05d}.json" if folder else None
            batches.append(_Batch(files[start : start + _FILES_A_BATCH], kept, reader))
    read_batches = ordered_map(_read_batch, batches, num_workers=num_workers)
    for batch, read_files in zip(batches, read_batches, strict=True):
        for file, read in zip(batch.files, read_files, strict=True):
            if not read.docstrings:
                dropped[read.problem or "no_docstring"] += 1
                continue
            package, name = file.package, file.name
            group = group_of(name, package=package)
            held_out = is_held_out(group, package=package, fraction=config.held_out_fraction, seed=config.split_seed)
            yield ModuleDocs(package, name, group, held_out, read.docstrings)


def package_versions(config: PythonDocsConfig) -> dict[str, str]:
    """Installed versions of the configured packages; `python` is the minor version (`3.11`)."""
    versions = {}
    for package in config.packages:
        _locate(package)
        if package.distribution is None:
            versions[STANDARD_LIBRARY] = f"{sys.version_info.major}.{sys.version_info.minor}"
        else:
            versions[package.module] = metadata.version(package.distribution).split("+")[0]
    return versions


def check_versions(corpus: Path, config: PythonDocsConfig) -> None:
    """Refuse a corpus of documentation strings that was made from other versions than the installed ones.

    Args:
        corpus: The folder of the corpus. Without a manifest, or with that of other text, nothing is checked.
        config: The packages; those that the corpus was made without are not checked.

    Raises:
        DataError: A version differs; the message names both versions of each package.
    """
    path = corpus / MANIFEST_NAME
    manifest = read_json(path) if path.exists() else {}
    made_from = manifest.get("packages", {}) if manifest.get("kind") == KIND else {}
    here = package_versions(config)
    changed = {name: version for name, version in made_from.items() if here.get(name, version) != version}
    if not changed:
        return
    distributions = {package.module: package.distribution or package.module for package in config.packages}
    found = ", ".join(f"{distributions[name]} {old} (installed: {here[name]})" for name, old in changed.items())
    pins = " ".join(f"{distributions[name]}=={old}" for name, old in changed.items() if name != STANDARD_LIBRARY)
    raise DataError(
        f"{corpus} was made from {found}. Rows made from what is installed might stand in its text, which the encoder "
        "is pretrained on. Make the corpus again, `dvc repro corpus`, and repeat the command; or go back to the "
        f"versions it was made from" + (f": pip install {pins}" if pins else ".")
    )


def is_held_out(group: str, *, package: str, fraction: float, seed: int) -> bool:
    """Whether a group of modules is held out from pretraining, decided by a hash of its name alone.

    So a group stays on its side when its package grows, gains groups or loses them. In return the fraction holds only
    on average: `split_seed` is chosen for shares that are near the fraction in every package.

    Args:
        group: `scipy.stats._distn`.
        package: Part of the hash.
        fraction: Expected share of the groups, in (0, 1). A larger one holds out all that a smaller one does.
        seed: `split_seed`.

    Example:
        >>> sum(is_held_out(f"p.part{n}", package="p", fraction=0.1, seed=0) for n in range(1000))
        90
    """
    return unit_interval(seed, "held-out", package, group) < fraction


def group_of(module: str, *, package: str) -> str:
    """The group of modules that a module belongs to; a group is on one side of the split.

    A group is two levels below the package: a subpackage or a single file; in the standard library, a top-level module.
    One level would leave pandas and networkx with one group that holds most of their text.

    Example:
        >>> group_of("networkx.algorithms.flow.utils", package="networkx")
        'networkx.algorithms.flow'
        >>> group_of("email.mime.text", package="python")
        'email'
    """
    levels = 1 if package == STANDARD_LIBRARY else 3
    return ".".join(module.split(".")[:levels])


def _locate(package: PackageConfig) -> Path:
    """The folder of a package, found without importing it."""
    if package.distribution is None:
        if package.module != STANDARD_LIBRARY:
            raise ConfigError(
                f"python_docs.packages: {package.module!r} has no distribution. Only {STANDARD_LIBRARY!r}, the "
                "standard library, has none; give the name on the package index."
            )
        return Path(sysconfig.get_path("stdlib"))
    try:
        metadata.version(package.distribution)
        # Of a top-level name, find_spec imports nothing.
        spec = importlib.util.find_spec(package.module) if "." not in package.module else None
    except metadata.PackageNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"python_docs.packages: {package.module!r} (distribution {package.distribution!r}) is not installed as a "
            "package. Install it with pip, or take it off the list in conf/python_docs/."
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _module_files(package: str, root: Path, dropped: Counter[str]) -> list[_ModuleFile]:
    found: dict[str, Path] = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        # Names that cannot be imported (build folders, templates, backups) and installed packages are not modules.
        if not all(part.isidentifier() for part in parts) or parts[0] in _NOT_OF_THE_LIBRARY:
            continue
        if any(part in _TEST_PARTS or part.startswith("test_") or part == "conftest" for part in parts):
            dropped["test_module"] += 1
            continue
        names = parts[:-1] if parts[-1] == "__init__" else parts
        found[".".join(names if package == STANDARD_LIBRARY else (package, *names))] = path
    return [_ModuleFile(package, name, found[name]) for name in sorted(found) if name]


def _read_batch(batch: _Batch) -> list[_ReadFile]:
    sources = [file.path.read_bytes() for file in batch.files]
    if batch.kept is None:
        return _read_sources(sources)
    made_of = hashlib.sha256(batch.reader.encode())
    for source in sources:
        made_of.update(hashlib.sha256(source).digest())
    kept = kept_json(batch.kept, made_of.hexdigest(), lambda: list(map(_plain, _read_sources(sources))))
    return list(map(_from_plain, kept))


def _read_sources(sources: Sequence[bytes]) -> list[_ReadFile]:
    # A syntax tree has no cycles, but makes the collector look for some again and again: half the time of `ast.parse`.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return [_read_source(source) for source in sources]
    finally:
        if was_enabled:
            gc.enable()


def _read_source(content: bytes) -> _ReadFile:
    try:
        source = importlib.util.decode_source(content)
    except (UnicodeDecodeError, SyntaxError):  # the latter where the declared encoding is unknown or wrong
        return _ReadFile((), "undecodable")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in other people's source
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return _ReadFile((), "unparsable")
    return _ReadFile(tuple(_docstrings(tree, "")), None)


def _plain(read: _ReadFile) -> list[Any]:
    return [
        read.problem,
        [
            [each.name, each.kind, each.parameters, each.text, each.prose.paragraphs, each.prose.dropped]
            for each in read.docstrings
        ],
    ]


def _from_plain(plain: list[Any]) -> _ReadFile:
    problem, found = plain
    docstrings: list[Docstring] = []
    for name, kind, parameters, text, paragraphs, dropped in found:
        docstring = Docstring(name, kind, tuple(parameters), text)
        docstring.__dict__["prose"] = Prose(tuple(paragraphs), dropped)  # as the cached property keeps it
        docstrings.append(docstring)
    return _ReadFile(tuple(docstrings), problem)


def _docstrings(node: ast.AST, name: str) -> Iterator[Docstring]:
    """Documentation strings at and below a node, in source order."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
        if text.strip():
            docstring = Docstring(name, _kind(node), _parameters(node), text)
            _ = docstring.prose
            yield docstring
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(node, field, None) or ():
            if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                continue
            inner = name
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inner = f"{name}.{child.name}" if name else child.name
            yield from _docstrings(child, inner)


def _kind(node: ast.AST) -> Literal["module", "class", "function"]:
    if isinstance(node, ast.Module):
        return "module"
    return "class" if isinstance(node, ast.ClassDef) else "function"


def _parameters(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.ClassDef):
        found = next((child for child in node.body if getattr(child, "name", None) == "__init__"), None)
        return _parameters(found) if found is not None else ()
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return ()
    arguments = node.args
    listed = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg]
    return tuple(argument.arg for argument in listed if argument is not None and argument.arg not in ("self", "cls"))
