import itertools
import multiprocessing
import os
import signal

import pytest

import pretraining_processes as processes
from bertline.foundation.signals import STOP_SIGNALS, StopSignals
from bertline.training.interruption import StopRequest, starting_workers
from fork_server import forking


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_is_noted_and_nothing_else_happens(number):
    request = StopRequest()
    with request.listening():
        assert not request.made
        os.kill(os.getpid(), number)
        assert request.made
        assert request.signal_name == signal.Signals(number).name


@pytest.mark.parametrize("first", [[], [signal.SIGTERM], [signal.SIGUSR1, signal.SIGTERM]])
def test_a_second_ctrl_c_acts_at_once(first):
    seconds = itertools.count(100.0, 1.5)
    with StopRequest(StopSignals(now=lambda: next(seconds))).listening():
        for number in (*first, signal.SIGINT):
            os.kill(os.getpid(), number)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("numbers", "apart_s"),
    [
        ([signal.SIGTERM] * 3, 30.0),  # Slurm, when the grace time begins and when it ends
        ([signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM], 60.0),  # Slurm's --signal, then its time limit
        ([signal.SIGUSR2, signal.SIGUSR2], 2.0),
        ([signal.SIGINT, signal.SIGTERM], 5.0),
        ([signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGINT], 0.1),  # passed on by launcher and torchrun
    ],
)
def test_no_repetition_of_a_request_ends_training_before_it_is_saved(capsys, numbers, apart_s):
    seconds = itertools.count(100.0, apart_s)
    request = StopRequest(StopSignals(now=lambda: next(seconds)))
    with request.listening():
        for number in numbers:
            os.kill(os.getpid(), number)
    assert request.signal_name == numbers[0].name
    assert capsys.readouterr().out.count("training stops after a step") == 1


@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_data_worker_ignores_what_reaches_all_processes(method):
    """Slurm sends TERM to all processes of a step."""
    context = forking() if method == "forkserver" else multiprocessing.get_context(method)
    told, of_worker = context.Pipe()
    worker = context.Process(target=processes.wait_as_a_data_worker, args=(of_worker,), daemon=True)
    with starting_workers():
        worker.start()
    try:
        assert told.recv() == "started"
        if method != "forkserver":  # whose workers are started by a server
            os.kill(worker.pid, signal.SIGTERM)
        told.send("go")
        assert told.recv() == "ready"
        for number in STOP_SIGNALS:
            os.kill(worker.pid, number)
        told.send("end")
        worker.join(600)
        assert worker.exitcode == 0
    finally:
        worker.kill()


def test_the_handlers_from_before_come_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with StopRequest().listening():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
