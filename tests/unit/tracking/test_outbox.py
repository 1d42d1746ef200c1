import time

import pytest

from bertline.tracking.outbox import Outbox, RefusedError


def test_tasks_run_in_the_order_they_were_put_in() -> None:
    done: list[int] = []
    outbox = Outbox("test")
    for number in range(50):
        outbox.put(lambda number=number: done.append(number))
    assert outbox.flush()
    assert done == list(range(50))
    outbox.close()


def test_a_task_that_fails_for_now_is_tried_again_before_the_ones_behind_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done: list[str] = []
    failures = iter([ConnectionError("https://ada:pa55@h is down"), ConnectionError("still down")])

    def unreliable() -> None:
        error = next(failures, None)
        if error is not None:
            raise error
        done.append("first")

    outbox = Outbox("https://ada:pa55@h")
    outbox.put(unreliable)
    outbox.put(lambda: done.append("second"))
    for _ in range(3):
        outbox.flush()
    assert done == ["first", "second"]
    output = capsys.readouterr()
    assert output.err.count("warning:") == 1
    assert "pa55" not in output.err + output.out
    outbox.close()


def test_a_refused_task_is_dropped_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    def refused() -> None:
        raise RefusedError("no such run")

    done: list[str] = []
    outbox = Outbox("test")
    outbox.put(refused)
    outbox.put(lambda: done.append("next"))
    assert outbox.flush()
    assert done == ["next"]
    assert "no such run" in capsys.readouterr().err
    outbox.close()


def test_nothing_is_recorded_after_an_essential_task_was_refused() -> None:
    def refused() -> None:
        raise RefusedError("not allowed")

    done: list[str] = []
    outbox = Outbox("test")
    outbox.put(refused, essential=True)
    outbox.put(lambda: done.append("next"))
    assert not outbox.flush()
    outbox.close()
    assert done == []


def test_closing_while_the_server_is_away_ends_soon_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def down() -> None:
        raise ConnectionError("down")

    outbox = Outbox("test", patience_s=1200)  # that is for a server that says nothing; this one refuses
    outbox.put(down)
    started = time.monotonic()
    outbox.close()
    assert time.monotonic() - started < 600
    assert "did not take all records" in capsys.readouterr().err


def test_feeds_are_polled_without_being_asked_until_they_are_removed() -> None:
    polls: list[float] = []

    def poll() -> None:
        polls.append(time.monotonic())

    outbox = Outbox("test")
    outbox.add_feed(poll)
    outbox.flush()
    assert polls
    outbox.remove_feed(poll)
    outbox.flush()
    count = len(polls)
    outbox.flush()
    assert len(polls) == count
    outbox.close()
