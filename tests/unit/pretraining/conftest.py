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
    return lambda run="run", **changes: pretraining.pretrain_job(inputs, tmp_path / run, **changes)


@pytest.fixture(scope="session")
def finished(pretraining, inputs, tmp_path_factory):
    """The job of a finished run; tests leave its files as they are."""
    job = pretraining.pretrain_job(inputs, tmp_path_factory.mktemp("runs") / "finished")
    pretraining.run_pretraining(job)
    return job


@pytest.fixture(scope="module")
def sentences(pretraining, tmp_path_factory):
    """Examples of one segment."""
    folder = tmp_path_factory.mktemp("sentences")
    pretraining.write_inputs(folder, lengths=(16, 24), num_segments=1)
    return folder


@pytest.fixture
def make_mlm(pretraining, sentences, tmp_path):
    """A maker of jobs with the objective mlm."""
    own = {"objective": {"kind": "mlm"}}
    return lambda run="run", **changes: pretraining.pretrain_job(sentences, tmp_path / run, **{**own, **changes})


@pytest.fixture(scope="module")
def pairs(pretraining, tmp_path_factory):
    """Examples of two segments of one document."""
    folder = tmp_path_factory.mktemp("pairs")
    pretraining.write_inputs(folder, lengths=(16, 24), num_train=120, num_validation=30, of_one_document=True)
    return folder


@pytest.fixture
def make_contrastive(pretraining, pairs, tmp_path):
    """A maker of jobs with the objective contrastive."""
    phases = [{"steps": 30, "max_length": 24, "global_batch_size": 8}]
    own = {"objective": pretraining.CONTRASTIVE, "pretrain__phases": phases}
    return lambda run="run", **changes: pretraining.pretrain_job(pairs, tmp_path / run, **{**own, **changes})


@pytest.fixture
def make_shared(make_job):
    """A maker of jobs with the objective mlm_nsp_shared."""
    phases = [{"steps": 40, "max_length": 16, "global_batch_size": 8}]
    own = {"objective": pretraining_inputs.SHARED, "pretrain__phases": phases}
    return lambda run="run", **changes: make_job(run, **{**own, **changes})
