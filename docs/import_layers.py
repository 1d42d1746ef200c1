"""The import contracts of pyproject.toml, as a picture and as a table."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

_PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
_WIDTH, _ROW, _GAP, _SIDE = 720, 40, 12, 28


def layers_picture() -> str:
    """Return the layers as inline SVG, top layer first."""
    (contract,) = [one for one in _contracts() if one["type"] == "layers"]
    layers = [["pipelines"], *([name.strip() for name in layer.split("|")] for layer in contract["layers"])]
    height = len(layers) * (_ROW + _GAP)
    parts = [
        f'<svg class="layers" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'aria-label="Packages in layers; a package may import those below it">'
    ]
    for row, names in enumerate(layers):
        width = (_WIDTH - _SIDE - _GAP * (len(names) - 1)) / len(names)
        for column, name in enumerate(names):
            x, y = column * (width + _GAP), row * (_ROW + _GAP)
            parts.append(f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{_ROW}" rx="5"/>')
            parts.append(f'<text x="{x + width / 2:.0f}" y="{y + _ROW / 2 + 5:.0f}">{name}</text>')
    x, end = _WIDTH - _SIDE / 2, height - _GAP
    parts.append(f'<path d="M {x} 4 V {end - 4} m -6 -9 l 6 9 l 6 -9"/></svg>')
    return "".join(parts)


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
