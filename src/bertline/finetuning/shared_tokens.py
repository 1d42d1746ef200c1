"""Exact matches between the two texts of a pair, shown to the encoder as token types of their own.

Whether a token also stands in the other text is what decides many pair tasks, and it is what a small encoder learns
last: attention has to find it anew for every word. A marked token gets its segment's type plus `NUM_SEGMENT_TYPES`,
whose embedding begins as a copy of the segment's own, so that an encoder computes at first what it computed before.

References:
    Boualili, Moreno and Boughanem, "MarkedBERT: Integrating Traditional IR Cues in Pre-trained Language Models for
    Passage Retrieval", SIGIR 2020, section 3. There exact matches stand between marker tokens; a token type costs no
    positions.
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
"""BERT's own token types: 0 in the first text, 1 in the second. Marked, they are 2 and 3."""
_MAX_COMPARISONS = 1 << 24
"""Pairs of positions that are compared at once, a byte each."""


def with_shared_marked(sequences: Sequences, tokenizer: Tokenizer) -> Sequences:
    """Mark every token whose id also stands in the other text of its sequence; special tokens are never marked.

    Args:
        sequences: With token types 0 and 1. Without a second text nothing is marked.
        tokenizer: Names the special tokens. An unknown word is no match: two of them may be different words.
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
    """Give an encoder the types of marked tokens, each with the embedding of its segment; changes it in place.

    An encoder that has them, as one that was fine-tuned on marked pairs does, keeps its own.
    """
    old = encoder.embeddings.token_type_embeddings
    if old.num_embeddings >= 2 * NUM_SEGMENT_TYPES:
        return
    # An encoder of a single type has one for both segments.
    segments = [min(segment, old.num_embeddings - 1) for segment in range(NUM_SEGMENT_TYPES)]
    new = nn.Embedding(2 * NUM_SEGMENT_TYPES, old.embedding_dim)
    with torch.no_grad():
        new.weight.copy_(old.weight[segments * 2])
    encoder.embeddings.token_type_embeddings = new
    encoder.config = replace(encoder.config, type_vocab_size=new.num_embeddings)


def _shared(input_ids: NDArray[np.int64], token_type_ids: NDArray[np.int64], specials: list[int]) -> NDArray[np.bool_]:
    """[N, S]: whether a position's token stands in the other segment of its row."""
    same_token = input_ids[:, :, None] == input_ids[:, None, :]
    other_segment = token_type_ids[:, :, None] != token_type_ids[:, None, :]
    # Padding has the type of the first segment, and is special.
    return (same_token & other_segment).any(axis=2) & ~np.isin(input_ids, specials)
