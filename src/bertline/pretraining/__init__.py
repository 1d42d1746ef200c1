"""MLM and NSP pretraining: thin Lightning modules over the model and the examples."""
