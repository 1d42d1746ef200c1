"""Labelled data: sources, splits, metrics."""
