"""Exact matches between the two texts of a pair, given to the encoder as separate token types.

Whether a token also occurs in the other text decides many pair tasks, and a small encoder learns it last: attention
has to learn it separately for every word. A marked token gets its segment's type plus `NUM_SEGMENT_TYPES`, whose
embedding is initialised as a copy of the segment's own, so that marking does not change the encoder's output at first.

References:
    Boualili, Moreno and Boughanem, "MarkedBERT: Integrating Traditional IR Cues in Pre-trained Language Models for
    Passage Retrieval", SIGIR 2020, section 3. There exact matches are enclosed in marker tokens; a token type takes up
    no positions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertline.finetuning.encoding import Sequences
from bertline.modeling.bert import BertModel
from bertline.tokenization.tokenizer import Tokenizer

NUM_SEGMENT_TYPES = 2
"""BERT's own token types: 0 in the first text, 1 in the second. Marked tokens have types 2 and 3."""
_MAX_COMPARISONS = 1 << 24
"""Maximum pairs of positions that are compared at once, one byte each."""


def with_shared_marked(sequences: Sequences, tokenizer: Tokenizer) -> Sequences:
    """Mark every token whose id also occurs in the other text of its sequence; special tokens are never marked.

    Args:
        sequences: Sequences with token types 0 and 1. Without a second text nothing is marked.
        tokenizer: Gives the special tokens. `[UNK]` never matches: two unknown words may differ.
    """
    token_type_ids = sequences.token_type_ids.copy()
    num_rows, length = token_type_ids.shape
    rows_at_once = max(1, _MAX_COMPARISONS // max(length, 1) ** 2)
    specials = [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id]
    for start in range(0, num_rows, rows_at_once):
        rows = slice(start, start + rows_at_once)
        shared = _shared(sequences.input_ids[rows], sequences.token_type_ids[rows], specials)
        token_type_ids[rows] += NUM_SEGMENT_TYPES * shared
    return replace(sequences, token_type_ids=token_type_ids)


def add_marked_types(encoder: BertModel) -> None:
    """Add the token types of marked tokens to an encoder, in place, each with the embedding of its segment.

    An encoder that already has them, such as one fine-tuned on marked pairs, keeps its own.
    """
    old = encoder.embeddings.token_type_embeddings
    if old.num_embeddings >= 2 * NUM_SEGMENT_TYPES:
        return
    # An encoder with a single token type uses it for both segments.
    segments = [min(segment, old.num_embeddings - 1) for segment in range(NUM_SEGMENT_TYPES)]
    new = nn.Embedding(2 * NUM_SEGMENT_TYPES, old.embedding_dim)
    with torch.no_grad():
        new.weight.copy_(old.weight[segments * 2])
    encoder.embeddings.token_type_embeddings = new
    encoder.config = replace(encoder.config, type_vocab_size=new.num_embeddings)


def _shared(input_ids: NDArray[np.int64], token_type_ids: NDArray[np.int64], specials: list[int]) -> NDArray[np.bool_]:
    """Whether each position's token also occurs in the other segment of its row, [N, S]."""
    same_token = input_ids[:, :, None] == input_ids[:, None, :]
    other_segment = token_type_ids[:, :, None] != token_type_ids[:, None, :]
    # Padding has the type of the first segment, and is special.
    return (same_token & other_segment).any(axis=2) & ~np.isin(input_ids, specials)
