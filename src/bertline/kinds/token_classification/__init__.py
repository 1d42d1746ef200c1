"""Tagging of words with IOB2 tags, such as named entities."""
