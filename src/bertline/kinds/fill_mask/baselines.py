"""Baseline for filling blanks: the frequency of each token, regardless of the context."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertline.kinds.fill_mask.model import EncodedPassages, FilledBlanks
from bertline.sweep.baselines.base import Baseline, BaselineInputs
from bertline.tasks.stored_rows import PlainRows


def baselines(inputs: BaselineInputs) -> list[Baseline]:
    """Return the baseline that predicts the most frequent tokens of train for every blank; ties go to the lowest id.

    A token's probability is its share in train, with add-one smoothing over all tokens that are not special, so that
    none has probability 0. Tokens are scored, so without the encoder's tokenizer there is no baseline.
    """
    kind, tokenizer = inputs.kind, inputs.tokenizer
    if tokenizer is None:
        return []
    encoded = kind.encode(inputs.train, tokenizer)
    counts = _counts(encoded)
    ordinary = np.ones(len(counts), dtype=bool)
    ordinary[list(encoded.policy.special_ids)] = False
    log_probs = np.log((counts + 1) / (counts[ordinary].sum() + ordinary.sum()))
    # Special tokens come last: they are never the target.
    order = np.lexsort((np.arange(len(counts)), -counts, ~ordinary))
    ranks = np.empty(len(counts), dtype=np.int64)
    ranks[order] = np.arange(len(counts))

    def predicted(rows: PlainRows) -> FilledBlanks:
        blanks = kind.encode(rows, tokenizer)
        gold = blanks.gold
        return FilledBlanks(
            rows=blanks.rows,
            gold=gold,
            log_probs=log_probs[gold].astype(np.float32),
            ranks=ranks[gold],
            guesses=np.full(len(gold), order[0]),
            guess_probs=np.full(len(gold), np.exp(log_probs[order[0]]), dtype=np.float32),
            vocab=blanks.vocab,
        )

    return [inputs.baseline("unigram", "most frequent tokens", predicted)]


def _counts(encoded: EncodedPassages) -> NDArray[np.int64]:
    """Return how often each token of the vocabulary occurs in the passages, [V]; 0 for special tokens."""
    sequences = encoded.sequences
    real = np.arange(sequences.input_ids.shape[1]) < sequences.lengths[:, None]
    counts = np.bincount(sequences.input_ids[real], minlength=encoded.policy.vocab_size)
    counts[list(encoded.policy.special_ids)] = 0
    return counts
