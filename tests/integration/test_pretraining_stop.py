"""A graceful stop of several ranks whose steps are long: torchrun and schedulers kill them half a minute later."""

import os
import re
import signal
import time

import pytest

import pretraining_processes as processes
from bertline.training.checkpoints import CheckpointFolder
from pretraining_inputs import pretrain_job, write_inputs

STEP_S = 0.6
CHANGES = {
    "pretrain__phases": [{"steps": 40, "max_length": 16, "global_batch_size": 8}],
    "pretrain__checkpoint_every_steps": 40,
    "pretrain__validate_every_steps": 40,
    "runtime__progress_every_s": 0.1,
}


@pytest.mark.parametrize(
    ("signalled", "numbers"),
    [
        ([0], [signal.SIGTERM]),
        ([1], [signal.SIGUSR1, signal.SIGTERM]),
        ([0, 1], [signal.SIGTERM, signal.SIGTERM, signal.SIGTERM]),
    ],
)
def test_ranks_stop_and_save_within_two_steps_whichever_of_them_hears_of_it(tmp_path, signalled, numbers):
    write_inputs(tmp_path)
    job = pretrain_job(tmp_path, tmp_path / "run", **CHANGES)
    held = tmp_path / "held"
    before = processes.all_of(processes.slow_steps(STEP_S), processes.hold_at_step(3, held))
    ranks = processes.start_ranks(tmp_path, [job.run_folder] * 2, CHANGES, before=before)

    processes.wait_for(lambda: all((tmp_path / f"held.{rank}").exists() for rank in range(2)), ranks[0])
    for number in numbers:
        for rank in signalled:
            os.kill(ranks[rank].pid, number)
        time.sleep(0.01)
    held.touch()
    for rank in ranks:
        rank.join(timeout=600)
    assert 0 not in [rank.exitcode for rank in ranks]
    # Each says after which step it stopped.
    said = processes.output_of(job.run_folder).read_text()
    stopped = re.findall(r"TrainingInterrupted: pretraining was stopped and saved after step (\d+) of 40", said)
    assert len(stopped) == 2
    assert stopped[0] == stopped[1]
    assert CheckpointFolder(job.checkpoints_folder, keep=1).load_newest().step == int(stopped[0]) <= 5
