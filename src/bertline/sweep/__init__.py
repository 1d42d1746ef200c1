"""The honest sweep: an Optuna study, seeds, baselines; the only package that imports optuna."""
