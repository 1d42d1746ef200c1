"""Ranks that are killed, stopped or hang: the others end within `runtime.peer_timeout_s`, and say which one it was."""

import os
import re
import signal
import socket
import time
from contextlib import suppress

import psutil
import pytest

import pretraining_processes as processes
from bertline.training.checkpoints import CheckpointFolder
from pretraining_inputs import pretrain_job, write_inputs

TIMEOUT_S = 5.0
CHANGES = {**processes.UNTIL_A_RANK_IS_LOST, "runtime__peer_timeout_s": TIMEOUT_S}


def started(tmp_path, before=None):
    write_inputs(tmp_path)
    job = pretrain_job(tmp_path, tmp_path / "run", **CHANGES)
    folder = CheckpointFolder(job.checkpoints_folder, keep=1)
    ranks = processes.start_ranks(tmp_path, [job.run_folder] * 2, CHANGES, before=before)
    processes.wait_for(lambda: len(folder.steps) > 1, ranks[0])
    return job, ranks


def ended(job, rank):
    """What the rank that is left says; it ends within the timeout, and leaves a whole checkpoint."""
    took_s = processes.seconds_until_end(rank)
    printed = processes.output_of(job.run_folder).read_text()
    assert rank.exitcode == 1, printed
    assert took_s < TIMEOUT_S + 2, printed  # 2 s: the process ends
    assert CheckpointFolder(job.checkpoints_folder, keep=1).load_newest() is not None
    return " ".join(re.findall(r"bertline.foundation.errors\.(?:PeerLost|Machine)Error: (.*)", printed))


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_killed_or_stopped_ends_the_training(tmp_path, lost, number):
    job, ranks = started(tmp_path)
    try:
        os.kill(ranks[lost].pid, number)
        said = ended(job, ranks[1 - lost])
        assert f"rank {lost}" in said
        assert lost == 0 or f"rank 1 on {socket.gethostname()} (process {ranks[1].pid})" in said
        assert "start the run again, and it resumes" in said
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
        assert f"rank 1 on {socket.gethostname()} (process {ranks[1].pid})" in ended(job, ranks[0])
    finally:
        processes.kill(*ranks)


@pytest.mark.parametrize("hanging", [0, 1])
def test_a_rank_that_hangs_ends_the_training_and_the_message_says_where(tmp_path, hanging):
    job, ranks = started(tmp_path, before=processes.hang_at_step(30, rank=hanging, seconds=3600))
    try:
        said = ended(job, ranks[1 - hanging])
        assert f"rank {hanging} on {socket.gethostname()}" in said
        assert "has kept the others waiting" in said
        assert "waits for its next batch" in said
    finally:
        processes.kill(*ranks)


def test_a_rank_that_is_lost_while_the_others_wait_for_it_is_not_taken_for_slow(tmp_path):
    # The other one notices that it waits after half a second, and would find it to hang after 4 s.
    job, ranks = started(tmp_path, before=processes.stop_at_step(30, rank=1, after_s=1.5))
    try:
        stopped = psutil.Process(ranks[1].pid)
        processes.wait_for(lambda: stopped.status() == psutil.STATUS_STOPPED, ranks[0])
        assert "has given no sign of life" in ended(job, ranks[0])
    finally:
        processes.kill(*ranks)


def test_a_rank_that_fails_is_named_with_its_error(tmp_path):
    job, ranks = started(tmp_path, before=processes.fail_at_step(30, rank=1))
    try:
        said = ended(job, ranks[0])
        assert f"rank 1 on {socket.gethostname()} (process {ranks[1].pid}) failed: ZeroDivisionError" in said
    finally:
        processes.kill(*ranks)


def test_a_first_rank_that_validates_for_longer_is_waited_for(tmp_path):
    write_inputs(tmp_path)
    changes = {
        **CHANGES,
        "pretrain__phases": [{"steps": 8, "max_length": 16, "global_batch_size": 8}],
        "pretrain__validate_every_steps": 5,
        "runtime__peer_timeout_s": 4.0,
    }
    job = pretrain_job(tmp_path, tmp_path / "run", **changes)
    before = processes.slow_validation(4.5, rank=0)
    processes.finish(*processes.start_ranks(tmp_path, [job.run_folder] * 2, changes, before=before))


@pytest.mark.parametrize(
    ("missing", "said"),
    [(1, "1 of 2 ranks have not joined within 4 s; missing: 1."), (0, "waited up to 4 s for rank 0")],
)
def test_a_rank_that_fails_before_it_joins_is_not_waited_for(tmp_path, missing, said):
    """Such as one that finds no device; PyTorch alone would wait for half an hour."""
    write_inputs(tmp_path)
    changes = {**CHANGES, "runtime__peer_timeout_s": 1.0}
    job = pretrain_job(tmp_path, tmp_path / "run", **changes)
    ranks = processes.start_ranks(
        tmp_path, [job.run_folder] * 2, changes, before=processes.fail_before_joining(rank=missing)
    )
    try:
        took_s = processes.seconds_until_end(ranks[1 - missing])
        printed = processes.output_of(job.run_folder).read_text()
        assert ranks[1 - missing].exitcode == 1, printed
        assert took_s < 15, printed
        assert f"PeerLostError: {'rank 1 ' if missing == 0 else ''}{said}" in printed
    finally:
        processes.kill(*ranks)
