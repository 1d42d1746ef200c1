"""Dropout: the right share, the right mean, independent places, and the same compiled."""

import shutil

import pytest
import torch

from bertline.modeling.dropout import dropout


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_places_drop_what_uncompiled_ones_drop(backend):
    if backend == "inductor" and shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler")

    def two_places(values):
        return dropout(values, 0.2, site=1), dropout(values, 0.2, site=2)

    values = torch.ones(30, 41)
    torch.manual_seed(3)
    expected = two_places(values)
    torch.manual_seed(3)
    found = torch.compile(two_places, backend=backend)(values)
    assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])
    assert not torch.equal(found[0], found[1])
