"""The YAML files of `conf/`: their values, also as Hydra composes them, and their comments."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

ROOT = Path(__file__).resolve().parents[1]
CONF = ROOT / "conf"
ABSENT = object()
"""What `at` returns for a key that is not there."""


def loaded(file: Path) -> dict[str, Any]:
    """Return the content of a YAML file; that of a group's file as it is composed."""
    return _composed(file.parent.name, file.stem) if file.parent.parent == CONF else _raw(file)


@cache
def default_run() -> dict[str, Any]:
    """Return the configuration of the default run, whatever is kept in `conf/local`."""
    return _container(["~local"] if (CONF / "local").exists() else [], config="config")


def flat(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested mappings by key with dots; an empty mapping is a value."""
    found: dict[str, Any] = {}
    for key, value in mapping.items():
        if isinstance(value, Mapping) and value:
            found.update(flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found


def at(mapping: Any, path: str) -> Any:
    """Return the value of a key with dots; `ABSENT` if it is not there."""
    for part in path.split("."):
        if not isinstance(mapping, Mapping) or part not in mapping:
            return ABSENT
        mapping = mapping[part]
    return mapping


def header(file: Path) -> str:
    """Return the comment at the top of a YAML file as one line."""
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("# @package"):
            lines.append(line.lstrip("# "))
    return " ".join(lines)


@cache
def comments(file: Path) -> dict[str, str]:
    """Return the comment at the end of each line of a YAML file, by key with dots; also of the files it builds on."""
    found = {prefix + key: text for base, prefix in _bases(file) for key, text in comments(base).items()}
    path: list[tuple[int, str]] = []
    heading = ""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines()):
        match = re.match(r"( *)([\w@.]+):( .*)?$", line)
        if match is None:
            heading = line.lstrip("# ") if line.startswith("#") and number and file.parent == CONF else ""
            continue
        indent = len(match[1])
        path = [*(one for one in path if one[0] < indent), (indent, match[2])]
        text = re.search(r"\s#\s+(.*)$", match[3] or "")
        if text or heading:
            found[".".join(key for _, key in path)] = text[1] if text else heading
    return found


def _bases(file: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of the group that a file builds on, and the key below which each is put, with a dot."""
    for entry in _raw(file).get("defaults", []) if CONF in file.parent.parents else []:
        if isinstance(entry, dict):  # a group inside the group: launcher: local
            ((group, name),) = entry.items()
            key = group.removeprefix("override ")
            yield file.parent / key / f"{name}.yaml", f"{key}."
            continue
        name, _, key = entry.partition("@")
        if name != "_self_":
            yield file.parent / f"{name}.yaml", "" if key in ("", "_here_") else f"{key}."


@cache
def _raw(file: Path) -> dict[str, Any]:
    content = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    assert isinstance(content, dict)
    return typing.cast("dict[str, Any]", content)


@cache
def _composed(group: str, name: str) -> dict[str, Any]:
    """Return a file of a group as Hydra composes it, with the files that it builds on."""
    return _container([f"+{group}@_global_={name}"])


def _container(overrides: list[str], config: str | None = None) -> dict[str, Any]:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        content = OmegaConf.to_container(compose(config, overrides), resolve=False)
    assert isinstance(content, dict)
    return typing.cast("dict[str, Any]", content)
