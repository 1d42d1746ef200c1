import importlib.util
from pathlib import Path

import pytest

_HELPER = Path(__file__).parents[2] / "pretraining_inputs.py"


@pytest.fixture(scope="session")
def pretraining():
    """The module `tests/pretraining_inputs.py`."""
    spec = importlib.util.spec_from_file_location("pretraining_inputs", _HELPER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def inputs(pretraining, tmp_path_factory):
    """A folder with a small tokenizer and examples of lengths 16 and 24."""
    folder = tmp_path_factory.mktemp("inputs")
    pretraining.write_inputs(folder, lengths=(16, 24))
    return folder


@pytest.fixture
def make_job(pretraining, inputs, tmp_path):
    """A maker of jobs on `inputs`; `run` names the run folder, the rest is `section__key=value`."""

    def make(run: str = "run", **changes):
        return pretraining.pretrain_job(inputs, tmp_path / run, **changes)

    return make
