"""The tiny encoder and task of `tests/support/finetuning_inputs.py`."""

from __future__ import annotations

import pytest

import finetuning_inputs


@pytest.fixture(scope="session")
def inputs():
    """The module `tests/support/finetuning_inputs.py`."""
    return finetuning_inputs


@pytest.fixture(scope="session")
def input_folder(tmp_path_factory, inputs):
    folder = tmp_path_factory.mktemp("inputs")
    inputs.write_inputs(folder)
    return folder
