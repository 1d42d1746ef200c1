"""Public data sets with the traps that they are known for, and a dataset read through `datasets`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertline.foundation.errors import DataError
from bertline.tasks.build import build_task
from bertline.tasks.source_config import HubSourceConfig
from bertline.tasks.storage import read_rows, read_task_manifest
from bertline.tasks.table_source import hub_rows

GLUE = Path(__file__).parents[4] / "shared" / "data" / "tasks" / "glue"
needs_glue = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not GLUE.is_dir(), reason=f"the public data sets are not at {GLUE}"),
]


class TestGlue:
    pytestmark = needs_glue

    def test_mrpc_starts_with_a_byte_order_mark_and_has_unbalanced_quotes(
        self, tmp_path, task, table_source, python_docs
    ):
        source = table_source(
            GLUE / "MRPC", train_file="train.tsv", dev_file="dev.tsv", quoting=False, encoding="utf-8",
            text_column="#1 String", text_pair_column="#2 String", label_column="Quality",
        )  # fmt: skip
        build_task("mrpc", task(source), python_docs, tmp_path / "mrpc")
        manifest = read_task_manifest(tmp_path / "mrpc")
        assert manifest["labels"] == ["0", "1"]
        assert manifest["pair"] is True
        assert sum(manifest["counts"].values()) + sum(manifest["dropped"].values()) == 3668 + 408
        texts = read_rows(tmp_path / "mrpc", "train").texts
        assert any('"' in text for text in texts)
        with pytest.raises(DataError, match=r"train\.tsv:\d+.*quoting"):
            build_task("mrpc", task(table_source(
                GLUE / "MRPC", train_file="train.tsv", text_column="#1 String", label_column="Quality",
            )), python_docs, tmp_path / "quoted")  # fmt: skip

    def test_cola_has_no_header(self, tmp_path, task, table_source, python_docs):
        source = table_source(
            GLUE / "CoLA" / "glue", train_file="train.tsv", dev_file="dev.tsv", quoting=False, header=False,
            text_column=3, label_column=1,
        )  # fmt: skip
        build_task("cola", task(source, metric="matthews"), python_docs, tmp_path / "cola")
        manifest = read_task_manifest(tmp_path / "cola")
        assert manifest["labels"] == ["0", "1"]
        assert sum(manifest["counts"].values()) + sum(manifest["dropped"].values()) == 8551 + 1043

    def test_the_unlabelled_test_rows_of_rte_are_refused(self, tmp_path, task, table_source, python_docs):
        source = table_source(
            GLUE / "RTE", train_file="train.tsv", dev_file="dev.tsv", test_file="test.tsv", quoting=False,
            text_column="sentence1", text_pair_column="sentence2",
        )  # fmt: skip
        with pytest.raises(DataError, match=r"test\.tsv:2.*set that file to null"):
            build_task("rte", task(source), python_docs, tmp_path / "rte")


def hub_config(name, **changes):
    fields = {
        "kind": "hub", "name": str(name), "revision": "main", "subset": None, "train_split": "train",
        "dev_split": None, "test_split": None, "text_column": "text", "text_pair_column": None,
        "label_column": "label",
    }  # fmt: skip
    return HubSourceConfig(**{**fields, **changes})


def test_a_dataset_is_read_by_column_names(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    rows = [{"text": f"text {number}", "label": number % 2} for number in range(10)]
    (tmp_path / "data" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = hub_rows(hub_config(tmp_path / "data"))
    assert [(row.text, row.label) for row in source.train[:2]] == [("text 0", "0"), ("text 1", "1")]
    assert source.dev is source.test is None
    with pytest.raises(DataError, match="no column 'words'.*'text', 'label'"):
        hub_rows(hub_config(tmp_path / "data", text_column="words"))
    with pytest.raises(DataError, match="split 'validation'"):
        hub_rows(hub_config(tmp_path / "data", dev_split="validation"))
