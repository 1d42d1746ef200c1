"""Sentence splitting: by what is learned from the corpus itself, by lines, or by a pattern."""

from bertline.corpus.sentences.learned import split_sentences

__all__ = ["split_sentences"]
