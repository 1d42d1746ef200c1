import os
import signal
import threading

import pytest

from bertline.training.interruption import StopRequest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted_and_nothing_else_happens(number):
    request = StopRequest()
    with request.listening():
        assert not request.made
        os.kill(os.getpid(), number)
        assert request.made
        assert request.signal_name == signal.Signals(number).name


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_acts_at_once(number):
    seconds = iter([100.0, 101.5])
    with StopRequest(now=lambda: next(seconds)).listening():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)


def test_one_request_may_arrive_several_times(capsys):
    """As under Slurm, which signals the launcher, torchrun and the ranks, where the first two pass it on."""
    seconds = iter([100.0, 100.1, 100.9])
    request = StopRequest(now=lambda: next(seconds))
    with request.listening():
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
    assert request.signal_name == "SIGTERM"
    assert capsys.readouterr().out.count("training stops after a step") == 1


def test_the_handlers_from_before_come_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with StopRequest().listening():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_in_another_thread_nothing_changes():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def work():
        with StopRequest().listening():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
