"""Public data sets with the traps that they are known for, and a dataset read through `datasets`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertline.tasks.build import build_task
from bertline.tasks.stored_rows import read_task_manifest
from shipped_tasks import shipped

GLUE = Path(__file__).parents[5] / "shared" / "data" / "tasks" / "glue"


# Rows as published: train, dev and test files together (a row that stands in two of them is kept once, and counted).
PUBLISHED = {
    "sst2": ("glue/SST-2", {}, 67_349 + 872, 872),
    "cola": ("glue/CoLA/glue", {}, 8_551 + 1_043, 1_043),
    "mrpc": ("glue/MRPC", {}, 3_668 + 408 + 1_725, 1_725),
    "rte": ("glue/RTE", {}, 2_490 + 277, 277),
    "wnli": ("glue/WNLI", {}, 635 + 71, 71),
    "qnli": ("glue/QNLI_share", {"train_file": "dev_share.tsv", "test_file": None}, 4_001, None),
    "stsb": ("glue/STS-B", {}, 5_749 + 1_500 + 1_379, 1_379),
    "sick": ("sick", {}, 4_500 + 500 + 4_927, 4_927),
    "sick_relatedness": ("sick", {}, 4_500 + 500 + 4_927, 4_927),
    "trec": ("trec", {}, 5_452 + 500, 500),
}


@pytest.mark.shared_data
@pytest.mark.skipif(not GLUE.is_dir(), reason=f"the public data sets are not at {GLUE}")
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_shipped_task_reads_its_public_files_whole(tmp_path, python_docs, name):
    folder, source, num_rows, num_test_rows = PUBLISHED[name]
    build_task(name, shipped(name, GLUE.parent / folder, **source), python_docs, tmp_path / name)
    manifest = read_task_manifest(tmp_path / name)
    assert sum(manifest["counts"].values()) + sum(manifest["dropped"].values()) == num_rows
    if num_test_rows is not None:
        assert manifest["counts"]["test"] == num_test_rows
    assert sum(manifest["dropped"].values()) < 0.01 * num_rows
