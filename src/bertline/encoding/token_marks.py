"""Marks: features of a token, encoded in its token type: the case of its word, or a match in the other text of a pair.

A token with mark m gets its segment's type plus `NUM_SEGMENT_TYPES` * m; mark 0 means no mark. The embeddings of the
new types are initialized as copies of the segment embeddings, so that marks do not change a pretrained encoder's
output at first. Unlike marker tokens, marks take up no positions.

The case of words is for encoders whose tokenizer lower-cases. Whether a token also occurs in the other text decides
many pair tasks, and a small encoder learns it last: attention has to learn it separately for every word. Token ids do
not show at all whether a token is part of a word of the other text or shares its stem: "bind" in "keybindings",
"sorts" and "sorted".

References:
    Collobert et al., "Natural Language Processing (Almost) from Scratch", JMLR 12, 2011 (arXiv 1103.0398): its
    networks read lower-cased words and, as a separate feature, their capitalisation in these four classes.
    Boualili, Moreno and Boughanem, "MarkedBERT: Integrating Traditional IR Cues in Pre-trained Language Models for
    Passage Retrieval", SIGIR 2020, section 3: exact matches are enclosed in marker tokens. Partial matches and token
    types in place of marker tokens are ours.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertline.encoding.sequences import Sequences
from bertline.foundation.errors import ConfigError

if TYPE_CHECKING:
    from bertline.encoders.loading import Encoder
    from bertline.tokenization.tokenizer import Tokenizer

NUM_SEGMENT_TYPES = 2
"""BERT's own token types: 0 in the first text, 1 in the second."""


def with_marks(sequences: Sequences, marks: NDArray[np.integer]) -> Sequences:
    """Add marks [N, S] to the token types of sequences whose types are 0 and 1."""
    types = sequences.token_type_ids + NUM_SEGMENT_TYPES * marks
    return replace(sequences, token_type_ids=types.astype(np.uint8))


def add_marked_types(encoder: Encoder, num_marks: int) -> None:
    """Add the token types of marked tokens to an encoder, in place, each with the embedding of its segment.

    Existing types, such as those of an encoder fine-tuned with marks, keep their embeddings.

    Raises:
        ConfigError: The encoder has no token types.
    """
    import torch

    old = getattr(encoder.embeddings, "token_type_embeddings", None)
    if old is None:
        raise ConfigError(
            f"marked tokens are token types, and an encoder of the family {encoder.config.family} has none. Set "
            "shared_tokens=plain and word_case=plain, or take an encoder with token types."
        )
    num_types = NUM_SEGMENT_TYPES * (1 + num_marks)
    if old.num_embeddings >= num_types:
        return
    # An encoder with a single token type uses it for both segments.
    sources = [
        kind if kind < old.num_embeddings else min(kind % NUM_SEGMENT_TYPES, old.num_embeddings - 1)
        for kind in range(num_types)
    ]
    new = torch.nn.Embedding(num_types, old.embedding_dim)
    with torch.no_grad():
        new.weight.copy_(old.weight[sources])
    encoder.embeddings.token_type_embeddings = new
    encoder.config = replace(encoder.config, type_vocab_size=num_types)


LOWER, INITIAL, UPPER, MIXED = range(4)
"""Marks: no capital; only the first character is a capital; all letters (at least two) are capitals; any other mix."""
NUM_CASES = 3


def case_of(word: str) -> int:
    """Return the mark of a word.

    >>> [case_of(word) for word in ("n_jobs", "If", "X", "NaN", "URL", "3D", "_X", "A1", "été", "数据")]
    [0, 1, 1, 3, 2, 3, 3, 1, 0, 0]
    """
    if word == word.lower():
        return LOWER
    if word[0].isupper() and word[1:] == word[1:].lower():
        return INITIAL
    return UPPER if word.isupper() and sum(map(str.isalpha, word)) > 1 else MIXED


SAME_TOKEN, PARTIAL = 1, 2
"""Marks: `SAME_TOKEN` if the other text has the same token, `PARTIAL` if a word of it contains the token's characters
or its stem."""
NUM_MATCHES = 2
_FEWEST_CHARACTERS = 3
_SHORTEST_STEM = 4
_LONGEST_ENDING = 3


def with_shared_marked(sequences: Sequences, tokenizer: Tokenizer) -> Sequences:
    """Mark the tokens of pairs that match the other text; special tokens are never marked.

    A partial match is a token of at least 3 characters (without `##`) inside a word of the other text, or a token of
    at least 5 characters whose stem is inside one. The stem drops the last 3 characters but keeps at least 4 ("sorted"
    matches "sorting" by "sort"). `[UNK]` never matches: two unknown words may differ.

    Raises:
        ConfigError: The tokenizer is not BERT's, which gives each text of a pair a type of its own.
    """
    if not tokenizer.is_wordpiece:
        raise ConfigError(
            "shared_tokens=marked needs BERT's tokenizer, with a token type for each text of a pair. Set "
            "shared_tokens=plain, or take a BERT encoder."
        )
    specials = set(tokenizer.special_ids)
    marks = np.zeros_like(sequences.token_type_ids)
    for row, length in enumerate(sequences.lengths.tolist()):
        types = sequences.token_type_ids[row, :length]
        if types.any():
            marks[row, :length] = _marks_of(sequences.input_ids[row, :length].tolist(), types, tokenizer, specials)
    return with_marks(sequences, marks)


def _marks_of(ids: list[int], types: NDArray[np.integer], tokenizer: Tokenizer, specials: set[int]) -> list[int]:
    tokens = tokenizer.tokens(ids)
    segments = types.tolist()
    known: tuple[set[int], set[int]] = (set(), set())
    words = ["", ""]
    for token, token_id, segment in zip(tokens, ids, segments, strict=True):
        if token_id not in specials:
            known[segment].add(token_id)
            words[segment] += token.removeprefix("##") if token.startswith("##") else f" {token}"

    @cache
    def mark(token: str, token_id: int, other: int) -> int:
        if token_id in specials:
            return 0
        if token_id in known[other]:
            return SAME_TOKEN
        return PARTIAL if _is_inside(token.removeprefix("##"), words[other]) else 0

    return [mark(token, token_id, 1 - of) for token, token_id, of in zip(tokens, ids, segments, strict=True)]


def _is_inside(token: str, words: str) -> bool:
    """Return whether any of the space-separated words contains a token or its stem."""
    if len(token) < _FEWEST_CHARACTERS:
        return False
    stem = token[: max(_SHORTEST_STEM, len(token) - _LONGEST_ENDING)]
    return token in words or (len(token) > _SHORTEST_STEM and stem in words)
