"""The tiny encoder and task of `tests/finetuning_inputs.py`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_HELPER = Path(__file__).parents[2] / "finetuning_inputs.py"


@pytest.fixture(scope="session")
def inputs():
    """The module `tests/finetuning_inputs.py`."""
    spec = importlib.util.spec_from_file_location("finetuning_inputs", _HELPER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def input_folder(tmp_path_factory, inputs):
    folder = tmp_path_factory.mktemp("inputs")
    inputs.write_inputs(folder)
    return folder
