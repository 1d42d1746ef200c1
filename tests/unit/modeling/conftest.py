"""A small architecture for tests of the model's parts."""

from __future__ import annotations

import pytest

import tiny
from bertline.modeling.config import ModelConfig


@pytest.fixture
def config() -> ModelConfig:
    return tiny.model_config()
