"""Sentence-pair sequences for pretraining, stored as memory-mapped shards, and their masks."""
