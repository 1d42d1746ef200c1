import io
import threading

import pytest
import torch

from bertline.foundation.errors import MachineError
from bertline.training.checkpoints import BackgroundWriter, HostCopy


def state_of(module, optimizer):
    both = torch.arange(10.0)
    return {
        "model": module.state_dict(),
        "optimizer": optimizer.state_dict(),
        "views": [both[2:5], both.view(2, 5).t(), both],
        "empty": (torch.empty(0), torch.empty(3, 0), torch.tensor(4)),
        "plain": {"step": 3, "name": "x", "none": None, "half": torch.ones(3, dtype=torch.bfloat16)},
    }


@pytest.fixture
def trained():
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    module[2].weight = torch.nn.Parameter(module[0].weight[:2, :3])  # shares memory
    optimizer = torch.optim.AdamW(module.parameters(), fused=True)

    def step():
        module(torch.randn(5, 4)).sum().backward()
        optimizer.step()

    step()
    return module, optimizer, step


def bytes_of(state):
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def test_a_file_of_the_copy_has_the_bytes_of_a_file_of_the_state(trained):
    module, optimizer, step = trained
    host = HostCopy()
    for _ in range(3):
        state = state_of(module, optimizer)
        assert bytes_of(host.take(state)) == bytes_of(state)
        step()


def test_the_copy_stays_as_it_was_while_training_continues(trained):
    module, optimizer, step = trained
    state = state_of(module, optimizer)
    before, copied = bytes_of(state), HostCopy().take(state)
    step()
    assert bytes_of(state_of(module, optimizer)) != before
    assert bytes_of(copied) == before


def test_the_next_copy_needs_no_new_memory(trained):
    module, optimizer, step = trained
    host = HostCopy()
    first = host.take(state_of(module, optimizer))
    step()
    second = host.take(state_of(module, optimizer))
    for name, tensor in first["model"].items():
        assert tensor.data_ptr() == second["model"][name].data_ptr(), name


def test_one_function_runs_at_a_time_and_the_caller_does_not_wait_for_it():
    writer, may_end, done = BackgroundWriter(), threading.Event(), []
    writer.start(lambda: (may_end.wait(60), done.append(1)))
    assert done == []
    may_end.set()
    writer.start(lambda: done.append(len(done) + 1))
    writer.wait()
    assert done == [1, 2]


@pytest.mark.parametrize("call", ["check", "wait", "start"])
def test_an_error_is_raised_once_at_the_next_call(call):
    writer = BackgroundWriter()

    def fail():
        raise MachineError("the disk is full")

    writer.start(fail)
    writer._thread.join()
    with pytest.raises(MachineError, match="the disk is full"):
        getattr(writer, call)(*[fail] * (call == "start"))
    writer.check()
    writer.wait()
