"""Marks: features of a token, encoded in its token type, such as a match in the other text of a pair.

A token with mark m gets its segment's type plus `NUM_SEGMENT_TYPES` * m; mark 0 means no mark. The embeddings of the
new types are initialized as copies of the segment embeddings, so that marks do not change a pretrained encoder's
output at first. Unlike marker tokens, marks take up no positions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertline.finetuning.encoding import Sequences
from bertline.modeling.bert import BertModel

NUM_SEGMENT_TYPES = 2
"""BERT's own token types: 0 in the first text, 1 in the second."""


def with_marks(sequences: Sequences, marks: NDArray[np.int64]) -> Sequences:
    """Add marks [N, S] to the token types of sequences whose types are 0 and 1."""
    return replace(sequences, token_type_ids=sequences.token_type_ids + NUM_SEGMENT_TYPES * marks)


def add_marked_types(encoder: BertModel, num_marks: int) -> None:
    """Add the token types of marked tokens to an encoder, in place, each with the embedding of its segment.

    Existing types, such as those of an encoder fine-tuned with marks, keep their embeddings.
    """
    old = encoder.embeddings.token_type_embeddings
    num_types = NUM_SEGMENT_TYPES * (1 + num_marks)
    if old.num_embeddings >= num_types:
        return
    # An encoder with a single token type uses it for both segments.
    sources = [
        kind if kind < old.num_embeddings else min(kind % NUM_SEGMENT_TYPES, old.num_embeddings - 1)
        for kind in range(num_types)
    ]
    new = nn.Embedding(num_types, old.embedding_dim)
    with torch.no_grad():
        new.weight.copy_(old.weight[sources])
    encoder.embeddings.token_type_embeddings = new
    encoder.config = replace(encoder.config, type_vocab_size=num_types)
