"""A small task."""

from __future__ import annotations

import pytest

import finetuning_inputs
import finished_tasks
import tiny
from corpora import NO_PACKAGES

COMMON = tiny.task_fields(max_length=32, dev_fraction=0.2, test_fraction=0.2, split_seed=0)


@pytest.fixture
def table_source():
    return lambda path, **changes: finetuning_inputs.table_source(
        path=str(path), **{"encoding": "utf-8-sig", **changes}
    )


@pytest.fixture
def task():
    return lambda source, **changes: finetuning_inputs.task(**{"source": source, **COMMON, **changes})


@pytest.fixture
def number_task():
    return lambda source: finished_tasks.config_of("linear", **{**COMMON, "metric": "pearson", "source": source})


@pytest.fixture
def python_docs():
    return NO_PACKAGES
