"""Ranks that are killed, stopped or hang: the others end within `runtime.peer_timeout_s`, and say which one it was."""

import os
import re
import signal
import socket
import time
from contextlib import suppress

import pytest

import pretraining_processes as processes
from bertline.training.checkpoints import CheckpointFolder
from pretraining_inputs import pretrain_job, write_inputs

TIMEOUT_S = 10.0
CHANGES = {**processes.UNTIL_A_RANK_IS_LOST, "runtime__peer_timeout_s": TIMEOUT_S}


def started(tmp_path, before=None, size=2):
    write_inputs(tmp_path)
    job = pretrain_job(tmp_path, tmp_path / "run", **CHANGES)
    folder = CheckpointFolder(job.checkpoints_folder, keep=1)
    ranks = processes.start_ranks(tmp_path, [job.run_folder] * size, CHANGES, before=before)
    processes.wait_for(lambda: len(folder.steps) > 1, ranks[0])
    return job, ranks


def errors_of(job, *ranks):
    """What the ranks that are left say; they end within the timeout, and leave a whole checkpoint."""
    took_s = processes.seconds_until_end(*ranks)
    printed = processes.output_of(job.run_folder).read_text()
    assert {rank.exitcode for rank in ranks} == {1}, printed
    assert took_s < TIMEOUT_S + 2, printed  # 2 s: the process ends
    assert CheckpointFolder(job.checkpoints_folder, keep=1).load_newest() is not None
    return re.findall(r"bertline.foundation.errors\.(?:PeerLost|Machine)Error: (.*)", printed)


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_killed_or_stopped_ends_the_training(tmp_path, lost, number):
    job, ranks = started(tmp_path)
    try:
        os.kill(ranks[lost].pid, number)
        (error,) = errors_of(job, ranks[1 - lost])
        assert f"rank {lost} on {socket.gethostname()} (process {ranks[lost].pid})" in error
        assert "start the run again, and it resumes" in error
    finally:
        processes.kill(*ranks)


def test_all_that_are_left_name_the_one_that_is_lost(tmp_path):
    job, ranks = started(tmp_path, size=3)
    try:
        ranks[1].kill()
        errors = errors_of(job, ranks[0], ranks[2])
        assert len(errors) == 2
        assert all(error.startswith("rank 1 on ") and "rank 2" not in error for error in errors)
    finally:
        processes.kill(*ranks)


def test_a_launcher_that_stops_the_others_hides_no_reason(tmp_path):
    """As torchrun and srun do when a rank has failed."""
    job, ranks = started(tmp_path, before=processes.stop_as_a_worker())
    try:
        ranks[1].kill()
        time.sleep(0.1)
        with suppress(ProcessLookupError):  # it may have ended already, if this process was kept waiting
            os.kill(ranks[0].pid, signal.SIGTERM)
        assert f"rank 1 on {socket.gethostname()} (process {ranks[1].pid})" in " ".join(errors_of(job, ranks[0]))
    finally:
        processes.kill(*ranks)


def test_a_rank_that_fails_is_named_with_its_error(tmp_path):
    job, ranks = started(tmp_path, before=processes.fail_at_step(30, rank=1))
    try:
        errors = errors_of(job, *ranks)
        assert any(f"(process {ranks[1].pid}) failed: ZeroDivisionError" in error for error in errors)
    finally:
        processes.kill(*ranks)
