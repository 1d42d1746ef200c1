"""Ranks that are killed, stopped or hang: the others end within `runtime.peer_timeout_s`, and say so."""

import os
import re
import signal
import time
from contextlib import contextmanager, suppress

import pytest

import pretraining_processes as processes
from bertline.training.checkpoints import CheckpointFolder
from pretraining_inputs import pretrain_job, write_inputs

TIMEOUT_S = 10.0
CHANGES = {**processes.UNTIL_A_RANK_IS_LOST, "runtime__peer_timeout_s": TIMEOUT_S}


@contextmanager
def started(tmp_path, before=None, size=2):
    """A job and its ranks, in the middle of training."""
    write_inputs(tmp_path)
    job = pretrain_job(tmp_path, tmp_path / "run", **CHANGES)
    folder = CheckpointFolder(job.checkpoints_folder, keep=1)
    ranks = processes.start_ranks(tmp_path, [job.run_folder] * size, CHANGES, before=before)
    try:
        processes.wait_for(lambda: len(folder.steps) > 1, ranks[0])
        yield job, ranks
    finally:
        processes.kill(*ranks)


def errors_of(job, *ranks):
    """What the ranks that are left say; they end within the timeout, and leave a whole checkpoint."""
    took_s = processes.seconds_until_end(*ranks)
    printed = processes.output_of(job.run_folder).read_text()
    assert {rank.exitcode for rank in ranks} == {1}, printed
    assert took_s < TIMEOUT_S + 2, printed  # 2 s: the process ends
    assert CheckpointFolder(job.checkpoints_folder, keep=1).load_newest() is not None
    return re.findall(r"bertline.foundation.errors\.(?:PeerLost|Machine)Error: (.*)", printed)


@pytest.mark.parametrize(("size", "lost"), [(2, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_killed_or_stopped_ends_the_training(tmp_path, size, lost, number):
    left = [rank for rank in range(size) if rank != lost]
    with started(tmp_path, size=size) as (job, ranks):
        os.kill(ranks[lost].pid, number)
        errors = errors_of(job, *(ranks[rank] for rank in left))
        assert sorted(error.partition(" on ")[0] for error in errors) == [f"rank {rank}" for rank in left]
        assert all("start the run again, and it resumes" in error for error in errors)


def test_a_launcher_that_stops_the_others_hides_no_reason(tmp_path):
    """As torchrun and srun do when a rank has failed."""
    with started(tmp_path, before=processes.stop_as_a_worker()) as (job, ranks):
        ranks[1].kill()
        time.sleep(0.1)
        with suppress(ProcessLookupError):  # it may have ended already, if this process was kept waiting
            os.kill(ranks[0].pid, signal.SIGTERM)
        assert "Another rank was killed" in " ".join(errors_of(job, ranks[0]))


def test_the_first_rank_names_one_that_fails_with_its_error(tmp_path):
    with started(tmp_path, before=processes.fail_at_step(30, rank=1)) as (job, ranks):
        errors = errors_of(job, *ranks)
        assert any(f"(process {ranks[1].pid}) failed: ZeroDivisionError" in error for error in errors)
