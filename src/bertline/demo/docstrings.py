"""Docstrings of installed Python packages: source files are parsed with `ast`, never imported.

The split of `read_modules` is the only split of the default data: `held_out` modules are the validation split of the
corpus and the source of dev and test rows of the tasks built from the same packages.
"""

import ast
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
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from bertline.corpus.document import Dropped, SourceDocument
from bertline.corpus.files import InputShard, Part, shards_of
from bertline.corpus.reader import CorpusSettings, ReadingSettings
from bertline.demo.config import PackageConfig, PythonDocsConfig
from bertline.demo.prose import Prose, prose_paragraphs
from bertline.foundation.errors import ConfigError, DataError
from bertline.foundation.files import kept_json
from bertline.foundation.parallel import ordered_map
from bertline.foundation.seeds import unit_interval

STANDARD_LIBRARY = "python"
_NOT_OF_THE_LIBRARY = {"site-packages", "dist-packages"}
_TEST_PARTS = {"test", "tests"}
_FILES_A_BATCH = 40


@dataclass(frozen=True)
class Docstring:
    """A docstring with the name and parameters of its object."""

    name: str
    """Qualified name inside the module (`Linear.forward`); empty for the module itself."""
    kind: Literal["module", "class", "function"]
    parameters: tuple[str, ...]
    """Names of the parameters without self and cls; for a class, those of `__init__`."""
    text: str
    """Text after `inspect.cleandoc`: no common indentation, no blank lines at start and end."""

    @cached_property
    def prose(self) -> Prose:
        """Prose paragraphs of the docstring; `read_modules` sets them, as worker processes compute them."""
        return prose_paragraphs(self.text)


@dataclass(frozen=True, slots=True)
class ModuleDocs:
    """The docstrings of one module, in source order."""

    package: str
    """Package name, as in `PackageConfig.module`."""
    name: str
    """Module name, such as `torch.nn.functional`."""
    group: str
    """Module group, such as `torch.nn.modules`; see `group_of`."""
    held_out: bool
    """Whether the module is for validation, dev and test only; otherwise it is for training only."""
    docstrings: tuple[Docstring, ...]


# Why a file cannot be read, or its docstrings as plain data: `[name, kind, parameters, text, paragraphs, dropped]`.
_ReadFile = str | list[Any]
Cache = tuple[Path, str]
"""Folder of `docstrings_kept_in`, and what its entries depend on besides the files."""
_KEPT_IN: ContextVar[Cache | None] = ContextVar("kept_in", default=None)


@contextmanager
def docstrings_kept_in(folder: Path, *, reader: str) -> Iterator[None]:
    """Context manager in which `read_modules` caches the docstrings it finds.

    Five stages of the default pipeline read the same packages, and parsing takes most of the time of most of them. A
    cache entry is a batch of a package's files; it is valid for the same file contents, Python version and reader, and
    the batch is parsed again if any file changed.

    Args:
        folder: Cache folder; about 60 MB for the default packages.
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
    """Read all modules of the configured packages that have a docstring, in a fixed order.

    Order: packages as configured, modules by name. Test folders (`tests`, `test`, `test_*`, `conftest`) are left out:
    their docstrings describe checks, not the library. In `dropped`, modules that are left out are counted by reason.

    Raises:
        ConfigError: A package is not installed.
    """
    dropped = Counter() if dropped is None else dropped
    batches, num_tests = module_batches(config)
    dropped.update(test_module=num_tests)
    read = partial(read_batch, config, _KEPT_IN.get())
    for module in chain.from_iterable(ordered_map(read, batches, num_workers=num_workers)):
        if isinstance(module, ModuleDocs):
            yield module
        else:
            dropped[module[1]] += 1


def module_batches(config: PythonDocsConfig) -> tuple[list[tuple[Part, ...]], int]:
    """Return the source files of the packages in batches, named by their modules, and how many are tests."""
    batches: list[tuple[Part, ...]] = []
    tests: Counter[str] = Counter()
    for package in config.packages:
        files = [
            Part(str(path), name, path.stat().st_size, str(path.stat().st_mtime_ns))
            for name, path in _module_files(package.module, _locate(package), tests).items()
        ]
        starts = range(0, len(files), _FILES_A_BATCH)
        batches += [tuple(files[start : start + _FILES_A_BATCH]) for start in starts]
    return batches, tests["test_module"]


def read_batch(
    config: PythonDocsConfig, cache: Cache | None, batch: Sequence[Part]
) -> list[ModuleDocs | tuple[str, str]]:
    """Read a batch of `module_batches`: modules, or the name of one that is left out and why."""
    packages = {package.module for package in config.packages}
    modules: list[ModuleDocs | tuple[str, str]] = []
    for part, found in zip(batch, _read_files(cache, batch), strict=True):
        if isinstance(found, str) or not found:
            modules.append((part.name, found if isinstance(found, str) else "no_docstring"))
            continue
        first = part.name.partition(".")[0]
        package = first if first in packages else STANDARD_LIBRARY
        group = group_of(part.name, package=package)
        held_out = is_held_out(group, package=package, fraction=config.held_out_fraction, seed=config.split_seed)
        modules.append(ModuleDocs(package, part.name, group, held_out, tuple(map(_docstring, found))))
    return modules


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonDocsCorpusConfig(ReadingSettings, CorpusSettings):
    """Docstrings of the packages in `python_docs`: the default corpus, which needs no download."""

    kind: Literal["python_docs"]


@dataclass(frozen=True, slots=True)
class ModulesReader:
    """Reads each module as a document: the prose of its docstrings in source order."""

    packages: PythonDocsConfig
    fails: bool
    """Whether a module that is not text is an error."""
    cache: Cache | None = field(default_factory=_KEPT_IN.get)

    def plan(self, shard_bytes: int, source: str = "") -> tuple[list[InputShard], list[Dropped]]:
        """See `CorpusReader.plan`: shards are files of packages, one package after the other."""
        batches, num_tests = module_batches(self.packages)
        shards = shards_of(source, chain.from_iterable(batches), shard_bytes)
        return shards, [Dropped("documents/test_module", count=num_tests)]

    def read_shard(self, shard: InputShard) -> Iterator[SourceDocument | Dropped]:
        """See `CorpusReader.read_shard`.

        Raises:
            DataError: A module is not text in its encoding, and that is an error.
        """
        for module in read_batch(self.packages, self.cache, shard.parts):
            if not isinstance(module, ModuleDocs):
                name, reason = module
                if reason == "undecodable" and self.fails:
                    raise DataError(
                        f"the module {name} is not text in its encoding. Set corpus.on_undecodable=skip to leave it "
                        "out."
                    )
                yield Dropped(f"documents/{reason}", name)
                continue
            prose = [docstring.prose for docstring in module.docstrings]
            for reason, count in chain.from_iterable(each.dropped.items() for each in prose):
                yield Dropped(f"paragraphs/{reason}", module.name, count=count)
            paragraphs = tuple(chain.from_iterable(each.paragraphs for each in prose))
            yield SourceDocument(
                module.name, module.group, paragraphs, split="validation" if module.held_out else "train"
            )


def package_versions(config: PythonDocsConfig) -> dict[str, str]:
    """Return the installed versions of the configured packages; for `python`, major and minor version (`3.11`)."""
    versions = {}
    for package in config.packages:
        _locate(package)
        if package.distribution is None:
            versions[STANDARD_LIBRARY] = f"{sys.version_info.major}.{sys.version_info.minor}"
        else:
            versions[package.module] = metadata.version(package.distribution).split("+")[0]
    return versions


def is_held_out(group: str, *, package: str, fraction: float, seed: int) -> bool:
    """Return whether a module group is held out from pretraining, by a hash of seed, package and group name.

    A group therefore stays in its split when the package grows or its groups change. The fraction holds only on
    average: the configured `split_seed` was chosen so that each package is near it. A larger fraction
    only adds groups.

    >>> sum(is_held_out(f"p.part{n}", package="p", fraction=0.1, seed=0) for n in range(1000))
    90
    """
    return unit_interval(seed, "held-out", package, group) < fraction


def group_of(module: str, *, package: str) -> str:
    """Return the module group of a module; a group is never divided between splits.

    A group is two levels below the package (a subpackage or a single file); in the standard library, a top-level
    module. With one level, a single group would have most of the text of pandas and of networkx.

    >>> group_of("networkx.algorithms.flow.utils", package="networkx")
    'networkx.algorithms.flow'
    >>> group_of("email.mime.text", package="python")
    'email'
    """
    levels = 1 if package == STANDARD_LIBRARY else 3
    return ".".join(module.split(".")[:levels])


def _locate(package: PackageConfig) -> Path:
    """Return the folder of a package without importing it."""
    if package.module == STANDARD_LIBRARY:
        return Path(sysconfig.get_path("stdlib"))
    try:
        metadata.version(package.distribution or package.module)
        # For a top-level name, find_spec imports nothing.
        spec = importlib.util.find_spec(package.module) if "." not in package.module else None
    except metadata.PackageNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"python_docs.packages: {package.module!r} (distribution {package.distribution!r}) is not installed as a "
            "package. Install it with pip, or take it off the list in conf/python_docs/."
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _module_files(package: str, root: Path, dropped: Counter[str]) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        # Skip files that cannot be imported (build folders, templates, backups), and installed third-party packages.
        if not all(part.isidentifier() for part in parts) or parts[0] in _NOT_OF_THE_LIBRARY:
            continue
        if any(part in _TEST_PARTS or part.startswith("test_") or part == "conftest" for part in parts):
            dropped["test_module"] += 1
            continue
        names = parts[:-1] if parts[-1] == "__init__" else parts
        paths[".".join(names if package == STANDARD_LIBRARY else (package, *names))] = path
    return {name: paths[name] for name in sorted(paths) if name}


def _read_files(cache: Cache | None, batch: Sequence[Part]) -> list[_ReadFile]:
    sources = [Path(part.path).read_bytes() for part in batch]
    if cache is None:
        return list(map(_read_source, sources))
    folder, reader = cache
    made_of = hashlib.sha256(reader.encode())
    for source in sources:
        made_of.update(hashlib.sha256(source).digest())
    return kept_json(folder / f"{batch[0].name}.json", made_of.hexdigest(), lambda: list(map(_read_source, sources)))


def _read_source(content: bytes) -> _ReadFile:
    try:
        source = importlib.util.decode_source(content)
    except (UnicodeDecodeError, SyntaxError):  # the latter where the declared encoding is unknown or wrong
        return "undecodable"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in third-party source
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return "unparsable"
    return list(_docstrings(tree, ""))


def _docstring(plain: list[Any]) -> Docstring:
    name, kind, parameters, text, paragraphs, dropped = plain
    docstring = Docstring(name, kind, tuple(parameters), text)
    docstring.__dict__["prose"] = Prose(tuple(paragraphs), dropped)  # where cached_property stores the value
    return docstring


def _docstrings(node: ast.AST, name: str) -> Iterator[list[Any]]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
        if text.strip():
            prose = prose_paragraphs(text)
            kind = {ast.Module: "module", ast.ClassDef: "class"}.get(type(node), "function")
            yield [name, kind, _parameters(node), text, prose.paragraphs, prose.dropped]
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(node, block, None) or ():
            if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                continue
            inner = name
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inner = f"{name}.{child.name}" if name else child.name
            yield from _docstrings(child, inner)


def _parameters(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.ClassDef):
        initializer = next((child for child in node.body if getattr(child, "name", None) == "__init__"), None)
        return _parameters(initializer) if initializer is not None else ()
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return ()
    arguments = node.args
    listed = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg]
    return tuple(argument.arg for argument in listed if argument is not None and argument.arg not in ("self", "cls"))
