"""sweep@TASK: the Optuna study of one task, its best configuration over seeds, its baselines (artifacts/sweep/TASK).

    python pipelines/sweep.py task_name=docs_library sweep=tpe_halving

The work runs in a worker at runs/sweep@TASK/FINGERPRINT. Kill it and run the same command again: it goes on.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.line.opened import open_stage
from composition import recipe


def swept(composed: Mapping[str, Any], places: Mapping[str, Path] | None = None) -> Path:
    """Sweep, or resume a sweep that was stopped; returns the folder of the result.

    Args:
        composed: The configuration.
        places: See `open_stage`.
    """
    with open_stage("sweep", composed, places=places) as stage:
        metrics = stage.work()
        result = stage.folder / "result"
        for name in ("plots", "trials.csv"):
            stage.record.log_artifact(result / name, contains_text=False)
        for name in ("result.json", "predictions.parquet", "errors.html"):
            stage.record.log_artifact(result / name, contains_text=True)
        stage.finish(metrics)
        return stage.output


@recipe
def main(composed: dict[str, Any]) -> None:
    """See `swept`."""
    swept(composed)


if __name__ == "__main__":
    main()
