"""sweep@TASK: the Optuna study of one task, its best configuration over seeds, its baselines (artifacts/sweep/TASK).

    python pipelines/sweep.py task_name=docs_library sweep=tpe_halving

`bertline.sweep.run` is the page to read: trials, candidates over seeds, test, baselines, in this order, in
runs/sweep@TASK/FINGERPRINT. After a stop or a kill, the same command resumes.
"""

from bertline.cli.composition import run_recipe
from bertline.stages.sweep import Sweep

if __name__ == "__main__":
    run_recipe(Sweep(), __file__, __doc__)
