"""The process group of several ranks: how long ranks wait for one another while it is formed, and afterwards."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import group_ranks
from fork_server import forking
from ports import free_port


def outputs(folder: Path, *, fails: bool) -> list[str]:
    """What two ranks write; nothing where one ends before."""
    port, written = free_port(), [folder / str(rank) for rank in range(2)]
    ranks = [
        forking().Process(target=group_ranks.join, args=(rank, port, out), kwargs={"fails": fails})
        for rank, out in enumerate(written)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(600)
        rank.kill()
    return [out.read_text() if out.exists() else "" for out in written]


def test_a_rank_that_fails_between_joining_and_connecting_is_lost_and_not_waited_for(tmp_path: Path) -> None:
    said, of_the_other = outputs(tmp_path, fails=True)
    assert "rank 0 met all others, but could not be connected to them within 2400 s" in said
    assert "make doctor" in said
    assert not of_the_other


def test_a_rank_that_has_joined_is_waited_for_however_long_it_takes(tmp_path: Path) -> None:
    for said in outputs(tmp_path, fails=False):
        assert "sum 2.0" in said
        # Longer than any compilation, validation or saving; `training.peers` finds those that hang.
        assert float(said.split("limit_s")[1]) > timedelta(days=1).total_seconds()
