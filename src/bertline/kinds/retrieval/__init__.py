"""Retrieval of documents by the similarity of vectors."""
