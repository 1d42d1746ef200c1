"""A sweep that is killed again and again ends as the undisturbed one."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

import finetuning_inputs as inputs
from bertline.sweep.run import run_sweep
from fork_server import forking
from servers import wait_until
from sweep_pieces import BLOCKED, assert_each_done_once, brief_job, result_of, sweep_until


def stop_in_the_middle(job, phase, num_calls, number=signal.SIGKILL):
    """Start the sweep and send it a signal in the middle of a phase; return the helpers that it had."""
    blocked = job.run_folder / BLOCKED
    blocked.unlink(missing_ok=True)
    process = forking().Process(target=sweep_until, args=(job, phase, num_calls))
    job.run_folder.mkdir(exist_ok=True)
    process.start()
    try:
        wait_until(lambda: blocked.exists() or not process.is_alive(), every_s=0.02)
        assert process.is_alive(), "the sweep ended before it could be stopped"
        helpers = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, number)
        process.join(60)
        assert not process.is_alive()
        return helpers
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_sweep_resumes_and_loses_and_repeats_nothing(tmp_path, workers):
    inputs.write_inputs(tmp_path)
    job = brief_job(tmp_path, sweep_workers=workers)
    helpers = stop_in_the_middle(job, "trials", 2, signal.SIGINT)
    for phase in ("trials", "repetitions", "tests"):
        helpers += stop_in_the_middle(job, phase, 1)
    _, alive = psutil.wait_procs(helpers, timeout=60)
    assert not alive  # no helper outlives a stopped or killed sweep
    undisturbed = brief_job(tmp_path, "undisturbed")
    assert run_sweep(job) == run_sweep(undisturbed)
    assert result_of(job) == result_of(undisturbed)
    assert_each_done_once(job)
