"""Micro-batches travel in few bytes, and nothing is lost."""

import numpy as np
import pytest
import torch

import pretraining_inputs
from bertline.pretraining import data
from bertline.pretraining.data import MaskedExamples, compacted, expanded
from bertline.pretraining.row_layout import RowLayout

LENGTH = 128
LAYOUTS = {
    "padded": RowLayout(packed=False, rows=None),
    "full": RowLayout(packed=False, rows=None),
    "cut": RowLayout(packed=False, rows=24),
    "packed": RowLayout(packed=True, rows=None),
    "packed and cut": RowLayout(packed=True, rows=5),  # the last micro-batch is filled up with empty rows
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folders = {}
    for name, full_lengths in (("padded", ()), ("full", (LENGTH,))):
        folders[name] = tmp_path_factory.mktemp(name)
        pretraining_inputs.write_inputs(folders[name], lengths=(LENGTH,), full_lengths=full_lengths, num_train=64)
    return folders


def micro_batches(inputs, layout: str) -> list[dict[str, np.ndarray]]:
    folder = inputs["full" if layout == "full" else "padded"]
    examples = MaskedExamples(folder / "examples", "train", LENGTH)
    return list(examples.micro_batches(examples.batch(np.arange(64), epoch=0), LAYOUTS[layout]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_expanded_is_what_was_compacted(inputs, layout):
    for arrays in micro_batches(inputs, layout):
        whole = expanded(compacted(arrays))
        assert whole.keys() == arrays.keys()
        for name, values in arrays.items():
            assert whole[name].dtype == torch.from_numpy(values).dtype, name
            assert torch.equal(whole[name], torch.from_numpy(values)), name


def test_sequences_of_one_segment_have_only_the_first(tmp_path):
    pretraining_inputs.write_inputs(tmp_path, num_segments=1)
    examples = MaskedExamples(tmp_path / "examples", "train", 16)
    for packed in (False, True):
        batch = examples.batch(np.arange(20), epoch=0)
        for arrays in examples.micro_batches(batch, RowLayout(packed=packed, rows=None)):
            assert not expanded(compacted(arrays))["token_type_ids"].any()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_eight_workers_with_their_steps_ahead_fit_in_the_shared_memory_of_a_container(inputs, layout):
    sent = [compacted(arrays) for arrays in micro_batches(inputs, layout)]
    num_bytes = sum(values.nbytes for one in sent for values in one.values())
    num_tokens = sum(one["input_ids"].numel() for one in sent)
    tokens_per_step = 131_072
    assert 8 * data._STEPS_AHEAD * tokens_per_step * num_bytes / num_tokens < 0.5 * (64 << 20)
