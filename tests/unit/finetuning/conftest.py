"""A tiny encoder folder with a vocabulary of whole words, and rows that it can learn."""

from __future__ import annotations

import pytest

import finetuning_inputs
import tiny
from bertline.tokenization.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def inputs():
    """The module `tests/support/finetuning_inputs.py`."""
    return finetuning_inputs


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    return finetuning_inputs.write_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="session")
def machine():
    return tiny.machine()


@pytest.fixture(scope="session")
def tokenizer(encoder):
    return Tokenizer.load(encoder)
