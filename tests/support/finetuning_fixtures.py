"""Fixtures of the tests of fine-tuning and of kinds of task: a tiny encoder folder, and jobs that fine-tune it."""

from __future__ import annotations

import pytest

import finetuning_inputs
import tiny
from bertline.finetuning.job import FineTuningJob, TaskSplit
from bertline.tokenization.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def inputs():
    """The module `tests/support/finetuning_inputs.py`."""
    return finetuning_inputs


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    return finetuning_inputs.write_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="session")
def job_of():
    """A job that fine-tunes the encoder of a folder on rows, with changes of `fine_tuning`."""

    def make(kind, folder, train, dev, **changes):
        tokenizer = Tokenizer.load(folder)
        train, dev = (TaskSplit(rows=rows, encoded=kind.encode(rows, tokenizer)) for rows in (train, dev))
        return FineTuningJob(
            kind=kind, config=finetuning_inputs.fine_tuning(**changes), encoder="pretrained", encoder_folder=folder,
            train=train, dev=dev, seed=0, machine=tiny.machine(), runtime=tiny.runtime(),
        )  # fmt: skip

    return make


@pytest.fixture(scope="session")
def machine():
    return tiny.machine()


@pytest.fixture(scope="session")
def tokenizer(encoder):
    return Tokenizer.load(encoder)
