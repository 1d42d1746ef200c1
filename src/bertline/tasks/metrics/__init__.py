"""Metrics with the formulas of their reference implementations, in NumPy; one module per family."""
