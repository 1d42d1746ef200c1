"""Imports without garbage collection and without what Lightning does not use."""

import gc

import pytest

from bertline.cli.main import uncollected_imports


@pytest.fixture
def collector():
    """The collector, which is left as it was."""
    was_enabled = gc.isenabled()
    gc.enable()
    yield
    gc.unfreeze()
    if not was_enabled:
        gc.disable()


def test_nothing_is_collected_meanwhile_and_what_was_made_is_not_looked_at_afterwards(collector):
    gc.unfreeze()
    with uncollected_imports():
        assert not gc.isenabled()
        made = [object]
    assert gc.isenabled() and gc.is_tracked(made)
    assert not any(one is made for generation in range(3) for one in gc.get_objects(generation))
