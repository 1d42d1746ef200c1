"""Ranks that agree on the step to stop after, as threads whose sums wait for one another."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from bertline.training import interruption
from bertline.training.devices import Ranks
from bertline.training.interruption import StopAgreement, StopRequest

MOST_STEPS = 20


class Steps:
    """Training of several ranks in which step n takes `seconds_of(n)`; one rank is signalled after `signal_after`."""

    def __init__(self, monkeypatch, seconds_of, *, signal_after, num_ranks=2, save_every_s=None):
        self.seconds_of, self.signal_after, self.num_ranks = seconds_of, signal_after, num_ranks
        self.save_every_s, self.saved = save_every_s, [[] for _ in range(num_ranks)]
        self.sums = 0
        self._barrier = threading.Barrier(num_ranks, timeout=600)
        self._values = {}
        monkeypatch.setattr(interruption, "sum_over_ranks", self._sum)

    def run(self):
        """The step that each rank stops after; None where it never does."""
        with ThreadPoolExecutor(self.num_ranks) as ranks:
            return list(ranks.map(self._rank, range(self.num_ranks)))

    def _rank(self, rank):
        request, clock = StopRequest(), [0.0]
        agreement = StopAgreement(
            request,
            ranks=Ranks(rank=rank, world_size=self.num_ranks, local_rank=rank),
            device=torch.device("cpu"),
            most_steps=MOST_STEPS,
            now=lambda: clock[0] * (1 + rank),  # no two clocks are alike
            asks_to_save=lambda: bool(self.save_every_s and clock[0] - saved_at >= self.save_every_s),
        )
        saved_at = 0.0
        for step in range(1, 400):
            clock[0] += self.seconds_of(step)
            if step == self.signal_after and rank == self.num_ranks - 1:
                request.signal_name = "SIGTERM"
            if agreement.reached(step):
                return step
            if agreement.is_save_due:
                self.saved[rank].append(step)
                saved_at = clock[0]
        return None

    def _sum(self, values, device):
        self._values[threading.get_ident()] = values
        self.sums += 1
        self._barrier.wait()
        total = [sum(each) for each in zip(*self._values.values(), strict=True)]
        self._barrier.wait()
        return total


@pytest.mark.parametrize("step_s", [0.001, 0.04, 0.3, 0.9, 1.6, 60.0])
@pytest.mark.parametrize("signal_after", [1, 3, 101, 119])
def test_all_ranks_stop_after_the_same_step_within_a_second_or_a_step(monkeypatch, step_s, signal_after):
    stopped = Steps(monkeypatch, lambda step: step_s, signal_after=signal_after).run()
    assert stopped[0] == stopped[1]
    assert 0 <= (stopped[0] - signal_after) * step_s <= 1.0


def test_a_stop_is_soon_when_steps_have_become_longer(monkeypatch):
    """As when training goes from sequences of 128 to 512."""
    stopped = Steps(monkeypatch, lambda step: 0.04 if step <= 200 else 2.0, signal_after=241).run()
    assert stopped == [241, 241]


def test_short_steps_are_not_waited_for_one_by_one(monkeypatch):
    steps = Steps(monkeypatch, lambda step: 0.001, signal_after=None)
    assert steps.run() == [None, None]
    assert steps.sums / steps.num_ranks < 2 * 400 / MOST_STEPS + 5


@pytest.mark.parametrize(("step_s", "save_every_s"), [(0.04, 3.0), (0.7, 10.0), (60.0, 30.0)])
def test_all_ranks_save_after_the_same_steps_by_the_clock_of_the_first(monkeypatch, step_s, save_every_s):
    steps = Steps(monkeypatch, lambda step: step_s, signal_after=None, save_every_s=save_every_s)
    assert steps.run() == [None, None]
    first, second = steps.saved
    assert first == second
    between = [(later - earlier) * step_s for earlier, later in itertools.pairwise([0, *first])]
    assert save_every_s <= min(between) and max(between) <= max(save_every_s, step_s) + 1.0 + step_s
