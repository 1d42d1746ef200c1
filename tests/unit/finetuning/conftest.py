"""A tiny encoder folder with a vocabulary of whole words, and rows that it can learn."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from bertline.training.devices import Machine, Ranks

_HELPER = Path(__file__).parents[2] / "finetuning_inputs.py"


@pytest.fixture(scope="session")
def inputs():
    """The module `tests/finetuning_inputs.py`."""
    spec = importlib.util.spec_from_file_location("finetuning_inputs", _HELPER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory, inputs):
    return inputs.write_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="session")
def machine():
    return Machine(device=torch.device("cpu"), precision="fp32", compile=False, ranks=Ranks())
