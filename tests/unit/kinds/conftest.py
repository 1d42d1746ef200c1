"""A tiny encoder folder with a vocabulary of whole words."""

from __future__ import annotations

from pathlib import Path

import pytest

import finetuning_inputs
from bertline.tokenization.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finetuning_inputs.write_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="session")
def tokenizer(encoder: Path) -> Tokenizer:
    return Tokenizer.load(encoder)
