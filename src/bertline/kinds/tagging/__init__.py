"""Tagging of every word, such as with parts of speech."""
