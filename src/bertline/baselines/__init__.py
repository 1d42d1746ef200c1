"""Baselines that the encoder is compared with."""
