"""Optimizers: one file each, one contract (`base.py`) and one registry (`registry.py`)."""
