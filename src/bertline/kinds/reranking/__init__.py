"""Re-ranking of candidates with a cross-encoder."""
