"""A disk that becomes full, or damages what it holds, costs steps and nothing else."""

import resource
import signal
import threading

import pytest
import pytorch_lightning as pl

from bertline.foundation.errors import ArtifactError, MachineError
from bertline.pretraining.run import run_pretraining
from bertline.training.checkpoints import CheckpointFolder
from pretraining_inputs import curve, pretrain_job, write_inputs
from resumes import assert_ended_as


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    return folder


@pytest.fixture(scope="module")
def alone(inputs, tmp_path_factory):
    """The job of a run that had no trouble."""
    job = pretrain_job(inputs, tmp_path_factory.mktemp("runs") / "alone")
    run_pretraining(job)
    return job


def checkpoints_of(job) -> CheckpointFolder:
    return CheckpointFolder(job.checkpoints_folder, keep=job.pretrain.keep_checkpoints)


class DiskFull(pl.Callback):
    """After a step, files cannot grow beyond so many bytes any more: the kernel refuses, as where a disk is full."""

    def __init__(self, after_step: int, size: int) -> None:
        self.after_step = after_step
        self.size = size

    def on_train_batch_end(self, trainer, module, *batch):
        if module.finished_steps == self.after_step:
            for thread in threading.enumerate():
                if thread.name == "saving":  # a checkpoint that is being written is not at stake here
                    thread.join()
            set_limit(self.size)


def set_limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@pytest.fixture
def limits():
    """Puts things right after the test; a signal would end the process where the limit is met."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


# capsys: what is printed must not go to a file.
def test_a_disk_that_is_full_for_a_while_costs_steps_and_nothing_else(inputs, alone, tmp_path, limits, capsys):
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    size = (alone.checkpoints_folder / "step-00000030.pt").stat().st_size
    job = pretrain_job(inputs, tmp_path / "full")
    # After which step, how small files must be, and the last step by then after which a checkpoint was due.
    moments = [(2, size // 2, 0), (9, size - 1, 8), (12, 100, 8), (17, size // 3, 16), (21, 0, 16), (25, size - 1, 24)]
    for step, limit, newest in moments:
        with pytest.raises(MachineError, match="cannot be written"):
            run_pretraining(job, callbacks=[DiskFull(step, limit)])
        set_limit(unlimited)
        found = checkpoints_of(job).load_newest()
        assert newest <= (found.step if found else 0) <= step
        assert not list(job.run_folder.rglob(".*"))
    run_pretraining(job)
    assert_ended_as(alone, job)


def tear(path):
    path.write_bytes(path.read_bytes()[:-1000])


def flip_a_byte(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [tear, flip_a_byte])
def test_from_a_damaged_checkpoint_it_resumes_from_the_one_before_and_ends_the_same(
    inputs, alone, tmp_path, capsys, damage
):
    job = pretrain_job(inputs, tmp_path / "damaged")
    run_pretraining(job)
    newest = checkpoints_of(job).steps[-1]
    damage(job.checkpoints_folder / f"step-{newest:08d}.pt")
    capsys.readouterr()
    run_pretraining(job)
    printed = capsys.readouterr()
    assert f"step-{newest:08d}.pt: its content does not match its SHA-256" in printed.err
    assert f"resumes after step {checkpoints_of(alone).steps[-2]} of {newest}" in printed.out
    assert_ended_as(alone, job)


def test_where_every_checkpoint_is_damaged_the_records_of_the_run_are_left_alone(inputs, tmp_path):
    job = pretrain_job(inputs, tmp_path / "lost")
    run_pretraining(job)
    rows = curve(job)
    for path in job.checkpoints_folder.glob("*.pt"):
        tear(path)
    with pytest.raises(ArtifactError, match=r"none of them is whole.*delete that folder to start from scratch"):
        run_pretraining(job)
    assert curve(job) == rows
