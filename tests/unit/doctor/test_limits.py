"""What hangs or fails becomes a red line, in time."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest

from bertline.doctor.finding import Finding, green
from bertline.doctor.limits import Check, Deadline, run_checks
from bertline.foundation.errors import MachineError

NEVER = threading.Event()


def check(name, run, limit_s=600.0):
    return Check(name=name, run=run, limit_s=limit_s, advice="Do this.")


def soon(seconds=600.0):
    return Deadline(time.monotonic() + seconds)


def hanging_open(path):
    os.mkfifo(path)
    path.read_text()  # waits in the system for a writer, as on a network file system that is away
    return []


def test_a_check_that_hangs_in_the_system_is_red_within_its_limit_and_the_next_one_runs(tmp_path):
    started = time.monotonic()
    found = run_checks(
        [
            check("disk", lambda: hanging_open(tmp_path / "pipe"), limit_s=0.2),
            check("next", lambda: [green("next", "fine")]),
        ],
        soon(),
    )
    assert [(one.check, one.status) for one in found] == [("disk", "red"), ("next", "green")]
    assert "no answer within" in found[0].found
    assert found[0].fix == "Do this."
    assert time.monotonic() - started < 300  # half of what all have: a machine may be busy


def test_a_server_that_takes_the_connection_and_says_nothing_is_red():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def ask():
            with socket.create_connection(server.getsockname()) as connection:
                connection.recv(1)
            return []

        (found,) = run_checks([check("server", ask, limit_s=0.2)], soon())
    assert found.status == "red"


def test_checks_that_run_together_do_not_wait_for_one_another():
    all_run = threading.Barrier(20, timeout=600)

    def meet():
        all_run.wait()
        return [green("met", "all run")]

    found = run_checks([check(str(i), meet) for i in range(20)], soon(), together=True)
    assert [one.status for one in found] == ["green"] * 20


def test_nothing_waits_beyond_the_deadline_of_all():
    started = time.monotonic()
    found = run_checks([check(str(i), NEVER.wait) for i in range(3)], soon(0.3))
    assert [one.status for one in found] == ["red"] * 3
    assert time.monotonic() - started < 300


def test_an_error_of_ours_brings_its_own_fix_and_another_one_the_advice_without_secrets():
    def ours():
        raise MachineError("There is no disk. Buy one.")

    def foreign():
        raise RuntimeError("cannot open https://ada:s3cret@example.org\nat line 7")

    first, second = run_checks([check("a", ours), check("b", foreign)], soon())
    assert (first.found, first.fix) == ("There is no disk", "Buy one.")
    assert second.found == "RuntimeError: cannot open https://ada:***@example.org"
    assert second.fix == "Do this."


@pytest.mark.parametrize("status", ["red", "note"])
def test_a_line_that_is_not_fine_must_say_what_to_do(status):
    with pytest.raises(ValueError, match="how to fix"):
        Finding(check="disk", status=status, found="full")
