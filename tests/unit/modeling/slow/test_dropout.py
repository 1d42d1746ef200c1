"""Dropout: the right share, the right mean, independent places, and the same compiled."""

import shutil

import pytest
import torch

from bertline.modeling.dropout import TokenMasks, dropout, mask_keys, token_numbers


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_places_drop_what_uncompiled_ones_drop(backend):
    if backend == "inductor" and shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler")

    keys = mask_keys(0, num_sites=3)
    masks = TokenMasks(keys, token_numbers(keys, torch.arange(2)[:, None], torch.arange(15), max_length=15))

    def two_places(values):
        states, probabilities = masks.of_states(41, 1).flatten(0, 1), masks.of_probabilities(masks, 2, 1)
        of_tokens = dropout(values, 0.2, site=1, places=states, keys=keys)
        attending = dropout(torch.ones(2, 2, 15, 15), 0.2, site=1, places=probabilities, keys=keys)
        return dropout(values, 0.2, site=1), dropout(values, 0.2, site=2), of_tokens, attending

    values = torch.ones(30, 41)
    torch.manual_seed(3)
    expected = two_places(values)
    torch.manual_seed(3)
    found = torch.compile(two_places, backend=backend)(values)
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
    assert not torch.equal(found[0], found[1])
