"""Examples on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertline.examples.store import ExampleBlock, write_shard


def write_shards(
    folder: Path, rows: Sequence[Sequence[int]], first_segment_lengths: Any, labels: Any, shard_sequences: int
) -> int:
    """Write examples, each a list of token ids, as shards of so many; return the number of tokens."""
    folder.mkdir(parents=True)
    for number, start in enumerate(range(0, len(rows), shard_sequences)):
        part = slice(start, start + shard_sequences)
        ids, lengths = np.concatenate(rows[part]).astype(np.uint16), np.array([len(row) for row in rows[part]])
        block = ExampleBlock(ids, lengths, np.array(first_segment_lengths[part]), np.array(labels[part]))
        write_shard(folder, number, block)
    return sum(map(len, rows))
