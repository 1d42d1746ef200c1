"""Scores by the formulas of their reference implementations, in NumPy; one module for each family."""
