"""Parts of bertline in other packages: kinds of task, objectives and corpus readers, named by entry
points.

A package declares them in its `pyproject.toml`: `[project.entry-points."bertline.kinds"]`, and a
line `NAME = "MODULE:CLASS"`, where NAME is the value of `kind` in the configuration. Results depend
on its version.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from bertline.foundation.errors import ConfigError

GROUPS = ("bertline.kinds", "bertline.objectives", "bertline.readers")
Plugin = TypeVar("Plugin")


@cache  # reads a file of every installed package
def _entries() -> Any:
    return entry_points()


def with_plugins(group: str, own: Mapping[str, Plugin]) -> dict[str, Plugin]:
    """Return bertline's own parts and those of other packages, by name.

    Raises:
        ConfigError: A part of another package cannot be imported, or has the name of another part.
    """
    parts = dict(own)
    for entry in _entries().select(group=group):
        package = entry.dist.name if entry.dist is not None else "unknown"
        where = f"the entry point {entry.name} = {entry.value} ({group}) of the package {package}"
        if entry.name in parts:
            raise ConfigError(f"{where} has the name of another part. Give it another one, or uninstall the package.")
        try:
            parts[entry.name] = entry.load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"{where} cannot be loaded: {error}. Fix the package, or uninstall it.") from error
    return parts


def packages_in(section: Any) -> set[str]:
    """Return the packages of the parts that a section of the configuration names as `kind`, at any
    depth."""
    entries = [entry for group in GROUPS for entry in _entries().select(group=group)]
    packages = {entry.name: entry.dist.name for entry in entries if entry.dist is not None}
    return {packages[kind] for kind in _kinds_in(section) if kind in packages} if packages else set()


def _kinds_in(section: Any) -> Iterator[str]:
    if isinstance(section, Mapping):
        if isinstance(section.get("kind"), str):
            yield section["kind"]
        for value in section.values():
            yield from _kinds_in(value)
