"""One fine-tuning run on one task."""
