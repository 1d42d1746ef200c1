import resource
import signal
import threading
from concurrent import futures
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from bertline.foundation.errors import ArtifactError, MachineError
from bertline.foundation.files import sha256_of_file
from bertline.training.checkpoints import BackgroundWriter, CheckpointFolder, on_host


def state(value: int) -> dict:
    return {"weights": torch.full((3,), float(value)), "step": value, "note": {"list": [1, "two"]}}


def files(*steps: int) -> list[str]:
    return [f"step-{step:08d}.pt{ending}" for step in steps for ending in ("", ".sha256")]


def found(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_are_kept(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=2)
    for step in (1, 2, 3):
        folder.save(step, state(step))
    assert found(tmp_path) == files(2, 3)
    assert folder.load(2).state["step"] == 2
    assert folder.load(1) is None


def test_saving_clears_what_kills_left_half_written_and_nothing_else(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=2)
    folder.save(1, state(1))
    for name in (".step-00000007.pt.part", "step-00000007.pt.sha256", ".step-00000007.pt.sha256.a1b2c3_4"):
        (tmp_path / name).write_text("left")
    (tmp_path / "step-00000001.pt.mine").write_text("a person's")
    folder.save(2, state(2))
    assert found(tmp_path) == sorted([*files(1, 2), "step-00000001.pt.mine"])


def damage(change):
    def do(path):
        path.write_bytes(change(path.read_bytes()))

    return do


def flipped(data, index):
    return data[:index] + bytes([data[index] ^ 0x80]) + data[index + 1 :]


DAMAGES = {
    "torn": damage(lambda data: data[: len(data) // 2]),
    "a byte short": damage(lambda data: data[:-1]),
    "empty": damage(lambda data: b""),
    "zeros, as after a power cut": damage(lambda data: bytes(len(data))),
    **{
        f"a byte flipped at {place:.0%}": damage(lambda data, place=place: flipped(data, int(place * (len(data) - 1))))
        for place in (0.0, 0.1, 0.35, 0.5, 0.8, 1.0)
    },
    "no digest": lambda path: digest_of(path).unlink(),
    "an empty digest": lambda path: digest_of(path).write_bytes(b""),
    "a torn digest": lambda path: damage(lambda data: data[:20])(digest_of(path)),
    "a byte of the digest flipped": lambda path: damage(lambda data: flipped(data, 5))(digest_of(path)),
}


def digest_of(path):
    return path.with_name(f"{path.name}.sha256")


@pytest.mark.parametrize("damaged", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_skipped_with_a_warning(tmp_path, capsys, damaged):
    folder = CheckpointFolder(tmp_path, keep=3)
    folder.save(1, state(1))
    damaged(folder.save(2, state(2)))
    assert folder.load_newest().step == 1
    assert "step-00000002.pt" in capsys.readouterr().err
    assert folder.load(2) is None
    assert "step-00000002.pt" in capsys.readouterr().err


def test_damaged_checkpoints_of_later_steps_do_not_push_out_whole_ones(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=3)
    for step in (10, 20, 30):
        folder.save(step, state(step))
    DAMAGES["torn"](tmp_path / "step-00000020.pt")
    DAMAGES["torn"](tmp_path / "step-00000030.pt")
    assert folder.load_newest().step == 10
    folder.save(12, state(12))  # stopped soon after
    assert found(tmp_path) == files(10, 12)


def test_where_all_are_damaged_training_is_not_restarted_from_scratch(tmp_path, capsys):
    folder = CheckpointFolder(tmp_path, keep=3)
    for step in (1, 2):
        DAMAGES["torn"](folder.save(step, state(step)))
    with pytest.raises(ArtifactError, match="has 2 checkpoints and none of them is whole.*delete that folder to start"):
        folder.load_newest()
    assert capsys.readouterr().err.count("warning") == 2


@contextmanager
def files_limited_to(size):
    """Files cannot grow beyond this many bytes: the kernel refuses, as where a disk is full."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_wherever_the_disk_becomes_full_nothing_is_lost_and_saving_works_again_later(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=1)
    folder.save(1, state(1))
    large = {**state(2), "large": torch.arange(2000.0)}
    size = CheckpointFolder(tmp_path.with_name("measured"), keep=1).save(2, large).stat().st_size
    for limit in (0, 1, 64, 65, 500, 4096, size // 2, size - 100, size - 1):
        with files_limited_to(limit), pytest.raises(MachineError, match="File too large"):
            folder.save(2, large)
        assert [name for name in found(tmp_path) if name.endswith((".pt", ".part"))] == files(1)[:1]
        assert folder.load_newest().step == 1
    with files_limited_to(size):
        folder.save(2, large)
    assert torch.equal(folder.load_newest().state["large"], large["large"])


class Trap:
    def __reduce__(self):
        return (print, ("code ran while loading",))


@pytest.mark.parametrize("content", [{"trap": Trap()}, torch.nn.Linear(1, 1), {"loss": np.float64(1.0)}])
def test_what_is_not_plain_data_is_refused_and_no_code_is_run_by_loading(tmp_path, capsys, content):
    folder = CheckpointFolder(tmp_path, keep=1)
    path = folder.save(1, state(1))
    torch.save(content, path)
    digest_of(path).write_text(sha256_of_file(path))
    with pytest.raises(ArtifactError, match="step-00000001.pt holds more than tensors and plain data"):
        folder.load_newest()
    assert "code ran" not in capsys.readouterr().out


def test_a_copy_on_the_host_stays_as_it_is_while_training_continues():
    weight = torch.ones(2, 3)
    state = {"model": {"weight": weight.requires_grad_()}, "plain": ([weight.t(), 3], (None, "x"))}
    copied = on_host(state)
    weight.data.add_(1)
    assert torch.equal(copied["model"]["weight"], torch.ones(2, 3)) and not copied["model"]["weight"].requires_grad
    (transposed, number), others = copied["plain"]
    assert (transposed.shape, transposed.sum(), number, others) == ((3, 2), 6, 3, (None, "x"))


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
    futures.wait([writer._written])
    with pytest.raises(MachineError, match="the disk is full"):
        getattr(writer, call)(*[fail] * (call == "start"))
    writer.check()
    writer.wait()
