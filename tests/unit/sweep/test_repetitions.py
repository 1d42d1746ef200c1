"""The best configurations over seeds: in which order they are worked through, and which of them wins."""

from __future__ import annotations

import pytest

import sweep_pieces
from bertline.foundation.errors import MachineError
from bertline.sweep import repetitions
from bertline.sweep.job import planned
from bertline.sweep.workers import Work


@pytest.fixture
def plan(inputs, input_folder, tmp_path):
    return lambda **changes: planned(inputs.sweep_job(input_folder, tmp_path / "run", sweep=inputs.sweep(**changes)))


def test_a_lost_piece_is_tried_again_after_the_others_and_not_for_ever(plan):
    first, second = (Work(sweep_pieces.say_who, name) for name in ("first", "second"))
    pieces = repetitions._Pieces(plan(max_retries=1), [first, second])
    taken = pieces.take()
    pieces.lost(taken)
    assert [pieces.take(), pieces.take(), pieces.take()] == [second, first, None]
    with pytest.raises(MachineError, match="took its process with it 2 times"):
        pieces.lost(first)
