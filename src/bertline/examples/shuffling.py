"""Sentences of a document in random order, in runs that stay together.

Two segments of a sequence then come from anywhere in the document: they have its subject in common, and seldom the
words of one paragraph, by which neighbouring segments are recognised.
"""

from __future__ import annotations

import dataclasses
import random

from bertline.corpus.document import Document
from bertline.foundation.seeds import seed_for


def shuffled(document: Document, *, together: int, seed: int) -> Document:
    """Return the document with its sentences in random order; a pure function of its arguments.

    Args:
        document: Document of the corpus.
        together: Number of sentences of a run, whose order stays.
        seed: Seed of the order, together with the document's id.
    """
    sentences = document.sentences
    rng = random.Random(seed_for(seed, "shuffle_sentences", document.id))
    runs = [sentences[start : start + together] for start in range(0, len(sentences), together)]
    # Python guarantees identical results in all versions only for `random()`.
    order = sorted((rng.random(), number) for number in range(len(runs)))
    return dataclasses.replace(document, sentences=tuple(one for _, number in order for one in runs[number]))
