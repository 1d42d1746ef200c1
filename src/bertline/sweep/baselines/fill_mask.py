"""Baseline of filling blanks: how frequent each piece is, whatever stands around the blank."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bertline.finetuning.kinds.fill_mask import EncodedPassages, FilledBlanks, FillMask
from bertline.sweep.baselines.base import Baseline
from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import PlainRows
from bertline.tokenization.tokenizer import Tokenizer


def fill_mask_baselines(
    kind: FillMask, train: PlainRows, dev: PlainRows, tests: Mapping[SplitName, PlainRows], tokenizer: Tokenizer
) -> list[Baseline]:
    """The most frequent pieces of train for every blank; of equally frequent ones the lowest id comes first.

    A piece is as likely as its share in train, with one added to each ordinary piece's count, so that none is
    impossible.
    """
    encoded = kind.encode(train, tokenizer)
    counts = _counts(encoded)
    ordinary = np.ones(len(counts), dtype=bool)
    ordinary[list(encoded.policy.special_ids)] = False
    log_probs = np.log((counts + 1) / (counts[ordinary].sum() + ordinary.sum()))
    # The special pieces come last: they are never the truth.
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
            pieces=blanks.pieces,
        )

    return [
        Baseline(
            name="unigram",
            title="most frequent pieces",
            predictions={split: predicted(rows) for split, rows in {"dev": dev, **tests}.items()},
        )
    ]


def _counts(encoded: EncodedPassages) -> NDArray[np.int64]:
    """[V] how often each piece stands in the passages; special pieces count as 0."""
    sequences = encoded.sequences
    real = np.arange(sequences.input_ids.shape[1]) < sequences.lengths[:, None]
    counts = np.bincount(sequences.input_ids[real], minlength=encoded.policy.vocab_size)
    counts[list(encoded.policy.special_ids)] = 0
    return counts
