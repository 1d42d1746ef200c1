"""Work is handed out once, comes back when its process dies, and fills the time in which there is no other."""

from __future__ import annotations

import pytest

import sweep_pieces
from bertline.foundation.errors import MachineError
from bertline.sweep.work import KnownWork, WithFiller, Work


@pytest.fixture
def job(inputs, input_folder, tmp_path):
    return inputs.sweep_job(input_folder, tmp_path / "run", sweep=inputs.sweep(max_retries=1))


def pieces(*names):
    return [Work(sweep_pieces.say_who, name) for name in names]


class Trials:
    """A source like the studies: work comes to an end before it is finished."""

    def __init__(self, *waiting):
        self.waiting = list(waiting)
        self.heard = []
        self.num_open = len(waiting)

    def take(self):
        return self.waiting.pop(0) if self.waiting else None

    def is_finished(self):
        return not self.num_open

    def done(self, work, result):
        self.num_open -= 1
        self.heard.append(("done", work.argument))

    def lost(self, work):
        self.waiting.append(work)
        self.heard.append(("lost", work.argument))


def test_a_lost_piece_is_tried_again_after_the_others_and_not_for_ever(job):
    first, second = pieces("first", "second")
    known = KnownWork(job, [first, second])
    taken = known.take()
    known.lost(taken)
    assert [known.take(), known.take(), known.take()] == [second, first, None]
    with pytest.raises(MachineError, match="took its process with it 2 times"):
        known.lost(first)


def test_filling_work_is_handed_out_only_while_the_first_source_has_none(job):
    trial, other = pieces("trial", "other")
    baselines = pieces("baselines")
    trials = Trials(trial)
    filled = WithFiller(trials, KnownWork(job, baselines))
    assert [filled.take(), filled.take(), filled.take()] == [trial, baselines[0], None]
    trials.waiting.append(other)  # a trial whose worker went silent comes back
    trials.num_open += 1
    assert filled.take() is other


def test_each_source_hears_of_its_own_work_and_both_have_to_be_finished(job, capsys):
    (trial,), (baselines,) = pieces("trial"), pieces("baselines")
    trials = Trials(trial)
    filled = WithFiller(trials, KnownWork(job, [baselines]))
    assert [filled.take(), filled.take()] == [trial, baselines]
    filled.lost(trial)
    filled.lost(baselines)
    assert trials.heard == [("lost", "trial")]
    assert [filled.take(), filled.take()] == [trial, baselines]
    filled.done(trial, "0.5")
    assert trials.is_finished()
    assert not filled.is_finished()
    filled.done(baselines, "baselines: scored")
    assert trials.heard[1:] == [("done", "trial")]
    assert filled.is_finished()
