"""Units of work are done once, by whoever is free, and come back when their process dies."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from bertline.foundation.errors import MachineError
from bertline.sweep import patience as patience_module
from bertline.sweep import store as store_module
from bertline.sweep import units as units_module
from bertline.sweep.members import has_died, member_name
from bertline.sweep.store import StudyStore
from bertline.sweep.units import SharedUnits, Unit, UnitTable, wait_for_file

ENDED = ":1:0.00"
"""What comes after the machine in the name of a process that has ended: the first one has started later than 1970."""


def units(*names):
    return [Unit("train", {"repetition": {"name": name}}, f"{name}/outcome.json") for name in names]


def run(bench, unit):
    return unit.result


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/studies.db"


@pytest.fixture
def clock(monkeypatch):
    """The time of this process and of the database: it passes when a test says so, however slow the machine is."""
    clock = SimpleNamespace(now_s=1e9)
    monkeypatch.setattr(patience_module, "time", SimpleNamespace(time=lambda: clock.now_s, monotonic=lambda: 0.0))
    monkeypatch.setattr(StudyStore, "now", property(lambda store: f"{clock.now_s:.1f}"))
    return clock


@pytest.fixture
def table(url):
    """Makes the table as a member of this name sees it."""

    def of(member=None, sweep="sweep"):
        made = UnitTable(StudyStore(url), sweep)
        made.member = member or made.member
        return made

    return of


@pytest.fixture
def shared(tmp_path):
    def of(table, *names, max_losses=1):
        return SharedUnits(
            table, units(*names), run=run, run_folder=tmp_path, task_name="halves", max_losses=max_losses
        )

    return of


def do(source, work, folder):
    (folder / work.argument.result).parent.mkdir(exist_ok=True)
    (folder / work.argument.result).touch()
    source.done(work, f"{work.argument.result}: 0.9 on dev")


def test_two_members_do_each_unit_once_and_the_leader_says_what_the_other_did(table, shared, tmp_path, capsys):
    leader, other = (shared(table(name), "a", "b", "c") for name in ("one machine", "another"))
    taken = [(source, source.take()) for source in (leader, other, leader, other)]
    assert [work and work.argument.result[0] for _, work in taken] == ["a", "b", "c", None]
    assert not leader.is_finished()
    for source, work in taken[:3]:
        do(source, work, tmp_path)
    assert leader.is_finished() and other.is_finished()
    assert capsys.readouterr().out.count("b/outcome.json: 0.9 on dev") == 2  # its own line, and the leader's
    assert not shared(table("a third"), "a", "b", "c").take()


def test_a_unit_of_a_process_of_this_machine_that_ended_is_free_at_once(table, shared):
    assert not has_died(member_name())
    ended = member_name().partition(":")[0] + ENDED
    assert has_died(ended) and not has_died("another machine" + ENDED)
    shared(table(ended), "a").take()
    assert shared(table(), "a").take().argument.result == "a/outcome.json"


def test_a_silent_member_keeps_its_unit_until_the_grace_is_over(table, shared, clock):
    shared(table("another machine"), "a").take()
    clock.now_s += store_module._GRACE_S + 1
    source = shared(table(), "a")
    assert source.take() is None  # this process has not been in contact for as long: the server may have been away
    pass_in_contact(clock, source)
    assert source.take() is not None


def pass_in_contact(clock, source):
    """Let the grace pass while the source asks now and then."""
    for _ in range(7):
        source.is_finished()
        clock.now_s += store_module._GRACE_S / 6


def test_signs_of_life_keep_a_unit(table, shared, clock):
    other = table("another machine")
    shared(other, "a").take()
    source = shared(table(), "a")
    for _ in range(20):
        clock.now_s += store_module._GRACE_S / 6
        other.beat()
        assert source.take() is None
    pass_in_contact(clock, source)
    assert source.take() is not None


def test_a_lost_unit_is_tried_again_after_the_others_and_not_for_ever(table, shared):
    source = shared(table(), "first", "second")
    source.lost(source.take())
    taken = [source.take() for _ in range(2)]
    assert [work.argument.result for work in taken] == ["second/outcome.json", "first/outcome.json"]
    source.lost(taken[1])
    with pytest.raises(MachineError, match="lost its process 2 times"):
        source.take()


def test_a_result_that_other_machines_do_not_see_is_waited_for_and_then_made_again(table, shared, monkeypatch):
    other = shared(table("another machine"), "a")
    other.done(other.take(), "done, but the file is not seen here")
    leader = shared(table(), "a")
    assert not leader.is_finished() and leader.take() is None
    monkeypatch.setattr(units_module, "_SEEN_WITHIN_S", -1.0)
    assert not leader.is_finished()
    assert leader.take() is not None


def test_a_sweep_that_was_stopped_in_this_process_lets_go_of_its_units(table, shared):
    shared(table(), "a").take()
    again = table()
    assert shared(again, "a").take() is None
    again.give_back_own()
    assert shared(again, "a").take() is not None


def test_units_of_another_run_folder_are_other_units(table, shared):
    assert shared(table(), "a").take()
    assert shared(table(sweep="another"), "a").take()


def test_the_last_attempt_at_a_unit_is_waited_for_as_long_as_its_process_lives(table, shared, tmp_path, clock):
    """The one before was lost with its machine, so that the loss was counted when the last attempt began."""
    shared(table("a lost machine"), "a", max_losses=0).take()
    other, leader = (shared(table(name), "a", max_losses=0) for name in ("another machine", "the leader's"))
    pass_in_contact(clock, other)
    work = other.take()
    assert leader.take() is None and not leader.is_finished()
    do(other, work, tmp_path)
    assert leader.is_finished()


def test_a_unit_whose_last_attempt_was_lost_with_its_machine_fails_the_sweep(table, shared, clock):
    shared(table("a lost machine"), "a", max_losses=0).take()
    other, leader = (shared(table(name), "a", max_losses=0) for name in ("another machine", "the leader's"))
    pass_in_contact(clock, other)
    other.take()
    pass_in_contact(clock, leader)
    with pytest.raises(MachineError, match="lost its process 1 times"):
        leader.take()


def test_a_file_is_waited_for_while_its_folder_is_being_replaced(tmp_path, monkeypatch):
    file = tmp_path / "result" / "outcome.json"
    monkeypatch.setattr(Path, "is_dir", lambda path: True)  # it was there a moment ago

    def is_led():
        file.parent.mkdir()
        file.touch()
        return True

    assert wait_for_file(file, is_led, every_s=0)
