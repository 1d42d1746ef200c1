"""sweep@TASK: the Optuna study of one task, its best configuration over seeds, its baselines (artifacts/sweep/TASK).

    python pipelines/sweep.py task_name=docs_library sweep=tpe_halving

`bertline.sweep.run` is the page to read: trials, candidates over seeds, test, baselines, in this order. It works
in runs/sweep@TASK/FINGERPRINT. After a stop or a kill, the same command resumes.
"""

import on_ctrl_c  # noqa: F401

# isort: split
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.orchestration.stage_run import open_stage
from bertline.training.environment import use_training_environment
from composition import recipe

WORK = "bertline.sweep.run:run"


def swept(composed: Mapping[str, Any], places: Mapping[str, Path] | None = None) -> Path:
    """Run a sweep, or resume a stopped one; return the folder of the result.

    Args:
        composed: Composed configuration.
        places: Input folders; see `open_stage`.
    """
    with open_stage("sweep", composed, places=places) as stage:
        stage.finish(stage.work(WORK))
        return stage.output


@recipe
def main(composed: dict[str, Any]) -> None:
    """See `swept`."""
    swept(composed)


if __name__ == "__main__":
    use_training_environment()
    main()
