import pytest

import pretraining_inputs


@pytest.fixture(scope="session")
def pretraining():
    """The module `tests/support/pretraining_inputs.py`."""
    return pretraining_inputs


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
