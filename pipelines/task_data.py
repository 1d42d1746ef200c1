"""task_data@TASK: rows of a labelled source, split into train, dev and test (artifacts/tasks/TASK).

python pipelines/task_data.py task_name=docs_library
"""

from typing import Any

from bertline.cli.composition import recipe
from bertline.run.fingerprints import check_packages_of_corpus
from bertline.run.stage import open_stage
from bertline.tasks.build import build_task


@recipe
def main(composed: dict[str, Any]) -> None:
    """Read, check, split and write the rows of one task."""
    with open_stage("task_data", composed) as stage:
        config, name = stage.config, stage.task_name
        assert name is not None
        check_packages_of_corpus(config, name)
        metrics = build_task(
            name, config.tasks[name], config.python_docs, stage.output, num_workers=config.runtime.num_workers
        )
        for split in ("train", "dev", "test"):
            stage.record.log_table(stage.output / f"{split}.parquet", split, num_rows=100)
        stage.finish(metrics)


if __name__ == "__main__":
    main()
