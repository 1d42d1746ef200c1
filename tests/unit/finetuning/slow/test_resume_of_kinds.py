"""Runs of every kind resume, with a teacher and without."""

from __future__ import annotations

import pytest

import finished_tasks


@pytest.mark.parametrize("taught", [False, True])
@pytest.mark.parametrize("name", sorted(finished_tasks.KINDS))
def test_a_killed_run_of_each_kind_ends_in_the_same_weights(assert_resumes, name, taught):
    assert_resumes(name, taught=taught)
