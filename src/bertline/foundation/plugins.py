"""Parts of bertline in other packages: kinds of task, objectives and corpus readers, named by entry
points.

A package declares them in its `pyproject.toml`: `[project.entry-points."bertline.kinds"]`, and a
line `NAME = "MODULE:CLASS"`, where NAME is the value of `kind` in the configuration. Results depend
on its version.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from bertline.foundation.errors import ConfigError
from bertline.foundation.mappings import leaves

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
    kinds = (value for key, value in leaves(section) if key.rpartition(".")[2] == "kind")
    return {packages[kind] for kind in kinds if kind in packages}
