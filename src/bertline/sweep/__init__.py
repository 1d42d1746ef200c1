"""Hyperparameter sweep: Optuna studies, seeds and baselines. The only package that imports optuna."""
