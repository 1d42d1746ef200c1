"""sweep@TASK: the Optuna study of one task, its best configuration over seeds, its baselines (artifacts/sweep/TASK).

    python pipelines/sweep.py task_name=docs_library sweep=tpe_halving

The work runs in a worker at runs/sweep@TASK/FINGERPRINT. Kill it and run the same command again: it goes on.
"""

from typing import Any

from bertline.line.opened import open_stage
from composition import recipe


@recipe
def main(composed: dict[str, Any]) -> None:
    """Sweep, or go on with a sweep that was stopped."""
    with open_stage("sweep", composed) as stage:
        metrics = stage.work()
        result = stage.folder / "result"
        for name in ("plots", "trials.csv"):
            stage.record.log_artifact(result / name, contains_text=False)
        for name in ("result.json", "predictions.parquet", "errors.html"):
            stage.record.log_artifact(result / name, contains_text=True)
        stage.finish(metrics)


if __name__ == "__main__":
    main()
