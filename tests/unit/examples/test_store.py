"""Shards on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertline.examples.store import ExampleStore, split_folder
from bertline.foundation.errors import ArtifactError
from bertline.foundation.manifests import write_manifest
from example_shards import write_shards

LENGTHS = [5, 9, 7, 16, 6, 8, 5, 11, 16, 7]


def write_store(folder: Path, shard_sequences: int) -> ExampleStore:
    rows = [[10 + number] * length for number, length in enumerate(LENGTHS)]
    labels = [number % 2 for number in range(len(LENGTHS))]
    tokens = write_shards(split_folder(folder, "train", 16), rows, [3] * len(LENGTHS), labels, shard_sequences)
    manifest = {
        "lengths": {"16": {"train": {"examples": len(LENGTHS), "tokens": tokens}}}, "random_next_prob": 0.5,
        "shard_sequences": shard_sequences, "special_ids": {"[PAD]": 0, "[CLS]": 2, "[SEP]": 3},
    }  # fmt: skip
    write_manifest(folder, kind="examples", format_version=1, content=manifest)
    return ExampleStore.open(folder, "train", 16)


@pytest.mark.parametrize("shard_sequences", [1, 3, 5, 10, 100])
def test_examples_come_back_whatever_the_size_of_shards(tmp_path: Path, shard_sequences: int) -> None:
    store = write_store(tmp_path, shard_sequences)
    assert (len(store), store.num_tokens, store.max_length) == (10, sum(LENGTHS), 16)
    for index, length in enumerate(LENGTHS):
        example = store[index]
        assert example.input_ids.tolist() == [10 + index] * length
        assert example.token_type_ids.tolist() == [0] * 3 + [1] * (length - 3)
        assert example.next_sentence_label == index % 2


def test_a_dataset_has_the_examples_without_a_copy_of_the_ids(tmp_path: Path) -> None:
    store = write_store(tmp_path, 3)
    rows = store.to_dataset()
    assert len(rows) == len(LENGTHS)
    for index, row in enumerate(rows):
        example = store[index]
        assert row["input_ids"] == example.input_ids.tolist()
        assert row["token_type_ids"] == example.token_type_ids.tolist()
        assert row["next_sentence_label"] == example.next_sentence_label
    buffers = rows.data.column("input_ids").chunk(0).values.buffers()
    assert buffers[1].address == store.shards[0][0].ctypes.data


def test_padded_rows_are_the_examples_one_by_one_in_the_order_asked_for(tmp_path: Path) -> None:
    store = write_store(tmp_path, 3)
    wanted = [9, 0, 3, 3, 8, 5]
    rows = store.padded(wanted)
    for row, index in enumerate(wanted):
        example = store[index]
        length = len(example.input_ids)
        assert rows.input_ids[row].tolist() == example.input_ids.tolist() + [0] * (16 - length)
        assert rows.lengths[row] == length
        assert rows.first_segment_lengths[row] == 3
        assert rows.next_sentence_labels[row] == example.next_sentence_label


def test_a_torn_shard_is_named(tmp_path: Path) -> None:
    write_store(tmp_path, 4)
    torn = split_folder(tmp_path, "train", 16) / "00001.input_ids.npy"
    torn.write_bytes(torn.read_bytes()[:-5])
    with pytest.raises(ArtifactError, match=r"00001\.input_ids\.npy cannot be read"):
        ExampleStore.open(tmp_path, "train", 16)
