"""task_data@TASK: rows of a labelled source, split into train, dev and test (artifacts/tasks/TASK).

python pipelines/task_data.py task_name=docs_library
"""

import on_ctrl_c  # noqa: F401

# isort: split
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.orchestration.fingerprints import check_packages_of_corpus
from bertline.orchestration.stage_run import open_stage
from bertline.tasks.build import build_task
from composition import recipe


def rows_made(composed: Mapping[str, Any]) -> Path:
    """Read, check, split and write the rows of one task; return their folder."""
    with open_stage("task_data", composed) as stage:
        assert stage.task_name is not None
        check_packages_of_corpus(stage.config, stage.task_name)
        task = stage.config.tasks[stage.task_name]
        num_workers = stage.config.runtime.num_workers
        metrics = build_task(stage.task_name, task, stage.config.python_docs, stage.output, num_workers=num_workers)
        for split in ("train", "dev", "test"):
            stage.record.log_table(stage.output / f"{split}.parquet", split, num_rows=100)
        stage.finish(metrics)
        return stage.output


@recipe
def main(composed: dict[str, Any]) -> None:
    """See `rows_made`."""
    rows_made(composed)


if __name__ == "__main__":
    main()
