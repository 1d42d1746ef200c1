"""sweep@TASK: the Optuna study of one task, its best configuration over seeds, its baselines (artifacts/sweep/TASK).

    python pipelines/sweep.py task_name=docs_library sweep=tpe_halving

`bertline.sweep.run` is the page to read: trials, candidates over seeds, test, baselines, in this order, in
runs/sweep@TASK/FINGERPRINT. After a stop or a kill, the same command resumes.
"""

from typing import Any

from bertline.cli.composition import recipe
from bertline.run.stage import open_stage
from bertline.training.environment import use_training_environment

WORK = "bertline.sweep.run:run"


@recipe
def main(composed: dict[str, Any]) -> None:
    """Run a sweep, or resume a stopped one."""
    with open_stage("sweep", composed) as stage:
        stage.finish(stage.work(WORK))


if __name__ == "__main__":
    use_training_environment()
    main()
