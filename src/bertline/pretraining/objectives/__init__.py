"""Pretraining objectives: one file each, one protocol (`base.py`) and one registry (`registry.py`)."""
