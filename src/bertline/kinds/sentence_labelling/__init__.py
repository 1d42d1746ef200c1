"""Labelling of the sentences of a document, all read together."""
