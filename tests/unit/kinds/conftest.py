"""A tiny encoder folder, jobs that fine-tune it, and where the demo's texts would come from."""

from __future__ import annotations

import pytest

from bertline.demo.config import PackageConfig, PythonDocsConfig
from finetuning_fixtures import encoder, inputs, job_of, machine, tokenizer  # noqa: F401


@pytest.fixture
def python_docs():
    return PythonDocsConfig(
        packages=(PackageConfig(module="python", distribution=None),), held_out_fraction=0.1, split_seed=0
    )
