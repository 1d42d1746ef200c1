"""evaluate: figures of all stages, curves and the report (artifacts/evaluate).

python pipelines/evaluate.py evaluate.title="my encoder"
"""

from typing import Any

from bertline.cli.composition import recipe
from bertline.evaluation.build import build_evaluation
from bertline.run.records import show_report
from bertline.run.stage import open_stage
from bertline.run.summary import pipeline_folders


@recipe
def main(composed: dict[str, Any]) -> None:
    """Collect the figures, draw the charts and write the report."""
    with open_stage("evaluate", composed) as stage:
        config, folders = stage.config, pipeline_folders(stage.config)
        metrics = build_evaluation(config.evaluate, folders, stage.output, num_workers=config.runtime.num_workers)
        show_report(stage, metrics, folders)
        stage.finish(metrics)


if __name__ == "__main__":
    main()
