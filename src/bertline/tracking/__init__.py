"""Experiment tracking with MLflow, fed from files. This is the only package that imports mlflow."""
