"""Corpus readers: each file has the configuration of a kind of corpus and reads its documents."""
