"""A small task."""

from __future__ import annotations

import pytest

import tiny
from bertline.demo.config import PackageConfig, PythonDocsConfig
from bertline.kinds.classification import ClassificationTaskConfig
from bertline.kinds.regression import RegressionTaskConfig
from bertline.tasks.source_config import TableSourceConfig


@pytest.fixture
def table_source():
    def make(path, **changes):
        fields = {
            "kind": "table", "path": str(path), "format": "auto", "train_file": None, "dev_file": None,
            "test_file": None, "extra_tests": {}, "text_column": "text", "text_pair_column": None,
            "label_column": "label", "label_pattern": None, "label_separator": None, "header": True, "quoting": True,
            "separator": None, "max_fields": None, "extra_fields": "error", "encoding": "utf-8-sig",
            "on_bad_row": "error",
        }  # fmt: skip
        return TableSourceConfig(**{**fields, **changes})

    return make


COMMON = tiny.task_fields(max_length=32, dev_fraction=0.2, test_fraction=0.2, split_seed=0)


@pytest.fixture
def task():
    def make(source, **changes):
        fields = {
            "kind": "classification", "source": source, "labels": None, "multi_label": False, "metric": "accuracy",
            "long_texts": "truncate", "window_overlap": 4, "shared_tokens": "plain", **COMMON,
        }  # fmt: skip
        return ClassificationTaskConfig(**{**fields, **changes})

    return make


@pytest.fixture
def number_task():
    def make(source, **changes):
        fields = {
            "kind": "regression", "source": source, "low": 0.0, "high": 5.0, "head": "linear", "pooling": "mean",
            "metric": "pearson", **COMMON,
        }  # fmt: skip
        return RegressionTaskConfig(**{**fields, **changes})

    return make


@pytest.fixture
def python_docs():
    return PythonDocsConfig(
        packages=(PackageConfig(module="python", distribution=None),), held_out_fraction=0.1, split_seed=0
    )
