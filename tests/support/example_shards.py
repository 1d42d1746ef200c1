"""Examples on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bertline.examples.store import ExampleBlock, write_shard


def write_shards(folder: Path, block: ExampleBlock, shard_sequences: int) -> None:
    """Write a block of examples as shards of so many."""
    folder.mkdir(parents=True)
    ends = np.cumsum(block.lengths)
    for number, start in enumerate(range(0, len(ends), shard_sequences)):
        rows = slice(start, start + shard_sequences)
        ids = block.input_ids[ends[start] - block.lengths[start] : ends[rows][-1]]
        part = (block.lengths[rows], block.first_segment_lengths[rows], block.next_sentence_labels[rows])
        write_shard(folder, number, ExampleBlock(ids, *part))
