"""Regression of a number for a passage or a pair of passages."""
