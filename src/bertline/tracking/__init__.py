"""Feeding MLflow from files; the only package that imports mlflow."""
