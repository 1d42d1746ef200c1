"""Evaluation of the whole pipeline: headline figures, plots and the HTML report."""
