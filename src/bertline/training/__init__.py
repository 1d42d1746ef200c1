"""Shared parts of every training run: optimizers, schedules, checkpoints and the single Trainer builder."""
