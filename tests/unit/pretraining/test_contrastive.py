"""Contrastive learning: the same groups give the same loss, whatever the rows, the micro-batches and the ranks."""
