"""Pretraining: thin Lightning modules over the model and the examples."""
