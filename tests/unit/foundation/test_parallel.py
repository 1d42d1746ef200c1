from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from bertline.foundation.errors import MachineError
from bertline.foundation.parallel import ordered_map


def test_an_endless_input_is_taken_only_a_few_items_ahead() -> None:
    taken = []

    def numbers() -> Iterator[int]:
        for number in range(10**9):
            taken.append(number)
            yield number

    results = ordered_map(abs, numbers(), num_workers=2)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    results.close()
    assert len(taken) <= 5 + 2 * 3


def test_a_worker_that_dies_is_an_error_that_names_the_remedy() -> None:
    with pytest.raises(MachineError, match="num_workers"):
        list(ordered_map(os._exit, [3], num_workers=2))


def leaves_ctrl_c_to_its_parent(_: int) -> bool:
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_worker_prints_no_traceback_when_ctrl_c_reaches_the_whole_terminal() -> None:
    # A process that a shell started in the background ignores Ctrl-C, and so would its workers.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert list(ordered_map(leaves_ctrl_c_to_its_parent, [1, 2], num_workers=2)) == [True, True]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
