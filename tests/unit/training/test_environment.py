"""The environment of training: what is set, that whoever set it already decides, and that it does what it is for."""

import pytest

from bertline.training.environment import environment_for_training

NAMES = ("GOMP_SPINCOUNT", "GLIBC_TUNABLES")


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({}, set(NAMES)),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, {"GLIBC_TUNABLES"}),
        ({"MALLOC_ARENA_MAX": "1"}, {"GOMP_SPINCOUNT"}),
        ({"GOMP_SPINCOUNT": "5", "GLIBC_TUNABLES": "glibc.malloc.check=3"}, set()),
    ],
)
def test_what_somebody_has_set_is_left(given, added):
    found = environment_for_training({"PATH": "/bin", **given})
    assert {name: found[name] for name in ("PATH", *given)} == {"PATH": "/bin", **given}
    assert found.keys() == {"PATH", *given} | added
