"""Workers are started again, and what a dead one had in its hands comes back."""

from __future__ import annotations

from collections import deque

import pytest

import sweep_pieces
from bertline.foundation.errors import DataError, MachineError
from bertline.sweep import workers as workers_module
from bertline.sweep.job import planned
from bertline.sweep.workers import ThisProcess, Work, WorkerProcesses, started_workers
from fork_server import forked_workers


class Pieces:
    """A source that remembers what became of its work."""

    def __init__(self, *work):
        self.waiting = deque(work)
        self.num_open = len(work)
        self.results = []
        self.losses = []

    def take(self):
        return self.waiting.popleft() if self.waiting else None

    def is_finished(self):
        return self.num_open == 0

    def done(self, work, result):
        self.num_open -= 1
        self.results.append(result)

    def lost(self, work):
        self.losses.append(work)
        self.waiting.append(work)


@pytest.fixture(autouse=True)
def quick_starts(monkeypatch):
    """Workers are forks: what becomes of them and of their work is looked at here, not how they start."""
    forked_workers(monkeypatch)


@pytest.fixture
def plan(inputs, input_folder, tmp_path):
    return lambda workers: planned(
        inputs.sweep_job(input_folder, tmp_path / "run", runtime=inputs.runtime(sweep_workers=workers))
    )


def test_this_process_does_all_work_in_order(plan):
    pieces = Pieces(*(Work(sweep_pieces.say_who, argument) for argument in "abc"))
    ThisProcess(plan(1)).work_through(pieces)
    assert pieces.results == [(0, "a"), (0, "b"), (0, "c")]


def test_a_process_by_itself_waits_for_nobody_and_leaves_filling_work_alone(plan):
    pieces, filler = Pieces(Work(sweep_pieces.say_who, "a")), Pieces(Work(sweep_pieces.say_who, "b"))
    ThisProcess(plan(1)).work_through(pieces, filler=filler)
    assert (pieces.results, filler.results) == ([(0, "a")], [])


def test_a_worker_that_would_wait_does_filling_work_which_may_outlast_the_other(plan, tmp_path):
    begun, let_go = tmp_path / "begun", tmp_path / "let go"
    pieces = Pieces(Work(sweep_pieces.wait_for, begun))
    filler = Pieces(Work(sweep_pieces.begin_and_wait_for, (begun, let_go)))
    with started_workers(plan(2), in_process=False) as workers:
        workers.work_through(pieces, filler=filler)
        assert (pieces.results, filler.results) == (["done"], [])
        later = Pieces(Work(sweep_pieces.say_who, "later"))
        workers.work_through(later, filler=filler)  # by the other worker, while the filler runs
        assert (len(later.results), filler.results) == (1, [])
        let_go.touch()
        workers.work_through(filler)
    assert filler.results == ["done"]


def test_a_filler_whose_worker_died_is_retried_only_as_the_source(plan, tmp_path, monkeypatch):
    let_go = tmp_path / "let go"
    pieces = Pieces(Work(sweep_pieces.wait_for, let_go))
    filler = Pieces(Work(sweep_pieces.die_the_first_time, tmp_path / "died"))
    listen = WorkerProcesses._listen

    def until_it_is_back(workers, source):
        """The other worker is busy until the dead one is back, and has been skipped when work was handed out."""
        if source is pieces and filler.losses and all(member.ready for member in workers._members):
            assert [member.work for member in workers._members].count(None) == 1
            let_go.touch()
        listen(workers, source)

    monkeypatch.setattr(WorkerProcesses, "_listen", until_it_is_back)
    with started_workers(plan(2), in_process=False) as workers:
        workers.work_through(pieces, filler=filler)
        assert filler.results == []
        workers.work_through(filler)
    assert (pieces.results, filler.results) == (["done"], ["done"])
    assert (pieces.losses, len(filler.losses)) == ([], 1)


def test_a_worker_that_is_killed_is_started_again_and_its_piece_comes_back_once(plan, tmp_path):
    victim = Work(sweep_pieces.die_the_first_time, tmp_path / "died")
    pieces = Pieces(victim, *(Work(sweep_pieces.say_who, argument) for argument in range(6)))
    with started_workers(plan(2), in_process=False) as workers:
        workers.work_through(pieces)
        assert pieces.losses == [victim]
        assert len(pieces.results) == 7
        assert {result[1] for result in pieces.results if result != "done"} == set(range(6))
        again = Pieces(Work(sweep_pieces.say_who, "later"))
        workers.work_through(again)  # the same processes serve the next half of the sweep
        assert [argument for _, argument in again.results] == ["later"]


def test_workers_that_die_without_getting_anything_done_end_the_sweep_with_a_reason(plan, monkeypatch):
    monkeypatch.setattr(workers_module, "MAX_DEATHS", 2)
    pieces = Pieces(Work(sweep_pieces.die, None))
    with (
        pytest.raises(MachineError, match=r"2 workers .* was killed \(SIGKILL\).*runtime\.sweep_workers"),
        started_workers(plan(1), in_process=False) as workers,
    ):
        workers.work_through(pieces)


@pytest.mark.parametrize("error", [DataError("row 3 has no text"), None], ids=["for people", "that cannot be sent"])
def test_what_a_piece_of_work_raises_ends_the_sweep(plan, error):
    expected, says = (DataError, "row 3") if error is not None else (RuntimeError, "UnsendableError: the disk is full")
    with (
        pytest.raises(expected, match=says),
        started_workers(plan(1), in_process=False) as workers,
    ):
        workers.work_through(Pieces(Work(sweep_pieces.fail, error)))
