"""Work is handed out once, and comes back when its process dies."""

from __future__ import annotations

import pytest

import sweep_pieces
from bertline.foundation.errors import MachineError
from bertline.sweep.workers import KnownWork, Work


@pytest.fixture
def job(inputs, input_folder, tmp_path):
    return inputs.sweep_job(input_folder, tmp_path / "run", sweep=inputs.sweep(max_retries=1))


def pieces(*names):
    return [Work(sweep_pieces.say_who, name) for name in names]


def test_a_lost_piece_is_tried_again_after_the_others_and_not_for_ever(job):
    first, second = pieces("first", "second")
    known = KnownWork(job, [first, second])
    taken = known.take()
    known.lost(taken)
    assert [known.take(), known.take(), known.take()] == [second, first, None]
    with pytest.raises(MachineError, match="lost its process 2 times"):
        known.lost(first)
