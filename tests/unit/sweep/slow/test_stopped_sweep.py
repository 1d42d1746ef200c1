"""A sweep that is stopped while its processes train saves what each of them trains, and resumes from there."""

from __future__ import annotations

import os
import re
import signal

import pytest

import finetuning_inputs as inputs
from bertline.sweep.run import run_sweep
from fork_server import forking
from servers import wait_until
from sweep_pieces import result_of, stoppable_sweep


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_sweep_resumes_from_the_steps_of_its_processes(tmp_path, number, capfd):
    inputs.write_inputs(tmp_path)
    sweep = inputs.sweep(
        fine_tuning=inputs.fine_tuning(num_epochs=60), space={}, random_weights_baseline="never", num_trials=1
    )
    job, undisturbed = (
        inputs.sweep_job(
            tmp_path, tmp_path / name, sweep=sweep, task=inputs.task(label_efficiency_rows=()),
            runtime=inputs.runtime(sweep_workers=2, progress_every_s=1e-6),
        )
        for name in ("stopped", "undisturbed")
    )  # fmt: skip
    output = tmp_path / "output"
    process = forking().Process(target=stoppable_sweep, args=(job, output))
    process.start()
    try:
        wait_until(lambda: output.exists() and output.read_text().count("step 2 of") >= 2, every_s=0.02)
        os.kill(process.pid, number)
        process.join(60)
        assert process.exitcode == 128 + number
    finally:
        process.kill()
    saved = sorted(int(file.name[5:13]) for file in job.checkpoints.glob("*/step-*.pt"))
    assert len(saved) == 2, output.read_text()
    capfd.readouterr()
    assert run_sweep(job) == run_sweep(undisturbed)
    resumed = sorted(int(step) for step in re.findall(r"resumes after step (\d+) of 360", capfd.readouterr().out))
    assert resumed == saved
    assert result_of(job) == result_of(undisturbed)
    assert not job.checkpoints.exists()
