"""The quality of a corpus: near duplicates, contamination with test data, and samples of what was dropped."""
