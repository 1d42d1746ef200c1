"""The colours of the charts can be told apart, also by readers who do not see red and green as others do."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from numpy.typing import NDArray

from bertline.evaluation.svg import chart_css

# Machado, Oliveira, Fernandes 2009, table 1: what linear RGB looks like without one kind of cone.
SIGHTS = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ.sum(axis=1)
# Distances in CIELAB: about 2 can just be seen side by side; thin lines and dots need far more.
LEAST = {"normal": 25, "protanopia": 7, "deuteranopia": 7}
PALETTES = dict(zip(("light", "dark"), chart_css().split("@media"), strict=True))


def colours(palette: str) -> dict[str, NDArray[np.float64]]:
    """Linear RGB of the colours and of the page."""
    found = re.findall(r"--(c\d|page): #(\w{6})", PALETTES[palette])
    values = {name: np.array([int(code[at : at + 2], 16) for at in (0, 2, 4)]) / 255 for name, code in found}
    return {name: np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) for name, rgb in values.items()}


def lab(linear: NDArray[np.float64]) -> NDArray[np.float64]:
    ratio = TO_XYZ @ linear.clip(0, 1) / WHITE
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_distances_are_those_of_cielab() -> None:
    assert lab(np.ones(3)) == pytest.approx([100, 0, 0], abs=0.1)
    assert lab(np.array([1.0, 0, 0])) == pytest.approx([53.2, 80.1, 67.2], abs=0.2)


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("palette", PALETTES)
def test_any_two_colours_can_be_told_apart(palette: str, sight: str) -> None:
    seen = {name: lab(SIGHTS[sight] @ colour) for name, colour in colours(palette).items() if name != "page"}
    assert len(seen) == 10
    near = {(a, b): np.linalg.norm(seen[a] - seen[b]) for a, b in itertools.combinations(seen, 2)}
    assert {pair: distance for pair, distance in near.items() if distance < LEAST[sight]} == {}


@pytest.mark.parametrize("palette", PALETTES)
def test_every_colour_stands_out_from_the_page(palette: str) -> None:
    light = {name: float(TO_XYZ[1] @ colour) for name, colour in colours(palette).items()}
    page = light.pop("page")
    # WCAG 2.2, success criterion 1.4.11: 3 to 1 for graphical objects.
    assert all((max(page, own) + 0.05) / (min(page, own) + 0.05) >= 3 for own in light.values())
