"""The import contracts of pyproject.toml, as a picture made of characters and as a table."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

_PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def layers() -> str:
    """Return the layers as a picture made of characters, top layer first."""
    (contract,) = [one for one in _contracts() if one["type"] == "layers"]
    lines = ["pipelines", *("   ".join(layer.split(" | ")) for layer in contract["layers"])]
    return "\n".join(["```text", *lines, "```"])


def forbidden_imports() -> str:
    """Return the contracts that keep libraries out of packages."""
    rows = ["| rule | packages | must not import |", "|---|---|---|"]
    for contract in _contracts():
        if contract["type"] == "forbidden":
            sources = [name.removeprefix("bertline.") for name in contract["source_modules"]]
            who = "all but " + _code(_all_packages() - set(sources)) if len(sources) > 6 else _code(sources)
            rows.append(f"| {contract['name']} | {who} | {_code(contract['forbidden_modules'])} |")
    return "\n".join(rows)


def _all_packages() -> set[str]:
    (contract,) = [one for one in _contracts() if one["type"] == "layers"]
    return {name.strip() for layer in contract["layers"] for name in layer.split("|")}


def _contracts() -> list[dict[str, Any]]:
    return tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]


def _code(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
