"""Prediction on user inputs, one module per kind of task, with the same computation as in evaluation."""
