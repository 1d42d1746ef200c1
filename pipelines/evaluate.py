"""evaluate: figures of all stages, curves and the report (artifacts/evaluate).

python pipelines/evaluate.py evaluate.title="my encoder"
"""

import on_ctrl_c  # noqa: F401

# isort: split
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.evaluation.build import build_evaluation
from bertline.orchestration.run_pages import pipeline_page
from bertline.orchestration.stage_run import open_stage
from bertline.orchestration.summary import pipeline_folders
from composition import recipe


def evaluated(composed: Mapping[str, Any], places: Mapping[str, Path] | None = None) -> Path:
    """Collect the figures, draw the charts and write the report; return its folder.

    Args:
        composed: Composed configuration.
        places: Input folders of a single task that is run by hand; see `open_stage`.
    """
    with open_stage("evaluate", composed, places=places) as stage:
        num_workers = stage.config.runtime.num_workers
        folders = pipeline_folders(stage.config, places)
        metrics = build_evaluation(stage.config.evaluate, folders, stage.output, num_workers=num_workers)
        report = stage.output / "report.html"
        headline, page = pipeline_page(stage.config, metrics, folders.sweeps, report)
        pipeline = stage.records.pipeline
        pipeline.log_metrics(headline)
        pipeline.set_tags(page)
        pipeline.log_artifact(report, contains_text=True)
        pipeline.log_artifact(stage.output / "plots", contains_text=False)
        stage.finish(metrics)
        return stage.output


@recipe
def main(composed: dict[str, Any]) -> None:
    """See `evaluated`."""
    evaluated(composed)


if __name__ == "__main__":
    main()
