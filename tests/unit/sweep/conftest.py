"""The tiny encoder and task of `tests/support/finetuning_inputs.py`."""

from __future__ import annotations

import shutil

import pytest

import finetuning_inputs
from bertline.foundation.manifests import read_manifest, write_manifest
from bertline.sweep.studies import Slot, enqueue_missing, open_storage, open_study
from bertline.tasks.stored_rows import TASK_FORMAT, TASK_KIND, write_rows


@pytest.fixture(scope="session")
def inputs():
    """The module `tests/support/finetuning_inputs.py`."""
    return finetuning_inputs


@pytest.fixture(scope="session")
def input_folder(tmp_path_factory, inputs):
    folder = tmp_path_factory.mktemp("inputs")
    inputs.write_inputs(folder)
    return folder


@pytest.fixture
def new_job(inputs, input_folder, tmp_path):
    """Makes the sweep of the inputs, in a folder `run`, with changes of the task, of the sweep and of the job."""

    def make(run="run", *, task=None, job=None, **sweep):
        changed = {"task": inputs.task(**(task or {})), "sweep": inputs.sweep(**sweep), **(job or {})}
        return inputs.sweep_job(input_folder, tmp_path / run, **changed)

    return make


@pytest.fixture(scope="session")
def finished(tmp_path_factory, inputs, input_folder):
    """A finished sweep of two arms, with an extra test: its job, its figures and its result.json.

    Tests leave its files as they are.
    """
    folder = tmp_path_factory.mktemp("task") / "task"
    shutil.copytree(input_folder / "task", folder)
    write_rows(folder, "test_other", inputs.learnable_rows(40, seed=9))
    manifest = read_manifest(folder, kind=TASK_KIND, format_version=TASK_FORMAT)
    content = {**manifest, "counts": {**manifest["counts"], "test_other": 40}}
    del content["kind"], content["format_version"]
    write_manifest(folder, kind=TASK_KIND, format_version=TASK_FORMAT, content=content)
    job = inputs.sweep_job(input_folder, tmp_path_factory.mktemp("sweep") / "run", task_folder=folder)
    return job, *inputs.swept(job)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/studies.db"


@pytest.fixture
def study(url, inputs):
    """A study of four planned points, x from 1 to 4."""
    study = open_study(open_storage(url), "task/run/encoder", inputs.sweep())
    enqueue_missing(study, [Slot(place, {"x": x}) for place, x in enumerate((1, 2, 3, 4))])
    return study
