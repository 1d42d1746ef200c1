"""Sentence splitting: by what is learned from the corpus itself, or by lines."""

from bertline.corpus.sentences.learned import split_sentences

__all__ = ["split_sentences"]
