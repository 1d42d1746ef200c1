"""Promise 5: training killed at any moment and restarted ends in the same weights as an uninterrupted run."""

import random
import shutil
import socket
import time

import pytest
import torch

import pretraining_processes as processes
from bertline.training.checkpoints import CheckpointFolder
from pretraining_inputs import assert_ended_as, curve, newest_checkpoint, newest_state, pretrain_job, write_inputs

STEPS = 160
CHANGES = {
    # With dropout, over two phases; the second is another length and another batch.
    "pretrain__phases": [
        {"steps": 90, "max_length": 16, "global_batch_size": 8},
        {"steps": 70, "max_length": 24, "global_batch_size": 6},
    ],
    "pretrain__checkpoint_every_steps": 4,
    "pretrain__validate_every_steps": 6,
    "pretrain__mask_predictions": {"every_steps": 9, "num_guesses": 3, "sentences": ["the [MASK] sat."]},
    "runtime__micro_batch_size": 3,
}
AT_MOMENTS = [
    ("save", 1),  # before the first checkpoint
    ("gradients", 3),
    *(("fsync", count) for count in (1, 2, 3, 4, 5, 9)),
    *(("replace", count) for count in (1, 3, 4, 6)),
    *(("rename", count) for count in (1, 2, 3)),
    *(("unlink", count) for count in (2, 9)),
    ("save", 2),
    ("validation", 1),
    ("validation", 2),
    ("mask predictions", 1),
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder, lengths=(16, 24))
    return folder


@pytest.fixture(scope="module")
def alone(inputs, tmp_path_factory):
    """The job of the run that is left alone."""
    run_folder = tmp_path_factory.mktemp("runs") / "alone"
    processes.finish(processes.start(inputs, run_folder, CHANGES))
    return pretrain_job(inputs, run_folder, **CHANGES)


def test_killed_at_twenty_random_moments_it_ends_as_if_left_alone(inputs, alone, tmp_path):
    job = pretrain_job(inputs, tmp_path / "killed", **CHANGES)
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    print(f"moments are drawn with seed {seed}")
    # None ends before it is killed, even if this process is kept waiting.
    held = processes.hold_at_step(STEPS - 10, tmp_path / "never")
    # Some come before there is a checkpoint, some before training has begun; each after a random while.
    for number, target in enumerate(sorted([-1, -1, -1, *(chance.randrange(STEPS - 50) for _ in range(17))])):
        changes = {**CHANGES, "runtime__num_workers": number % 2}
        process = processes.start(inputs, job.run_folder, changes, before=held)
        processes.wait_for(lambda target=target: newest_checkpoint(job) >= target, process)
        time.sleep(chance.uniform(0, 0.2 if target < 0 else 0.03))
        assert process.is_alive(), f"it ended with {process.exitcode} before the kill came"
        processes.kill(process)
    processes.finish(processes.start(inputs, job.run_folder, CHANGES))
    assert_ended_as(alone, job)


def test_killed_between_any_two_writes_it_ends_as_if_left_alone(inputs, alone, tmp_path):
    job = pretrain_job(inputs, tmp_path / "killed", **CHANGES)
    for moment, count in AT_MOMENTS:
        process = processes.start(inputs, job.run_folder, CHANGES, before=processes.kill_at(moment, count))
        process.join(timeout=600)
        assert process.exitcode == -9, (moment, count)
    processes.finish(processes.start(inputs, job.run_folder, CHANGES))
    assert_ended_as(alone, job)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_killed_in_both_phases_a_compiled_run_ends_as_if_left_alone(inputs, tmp_path):
    """As users train: compiled, packed, with dropout."""
    changes = {
        "pretrain__phases": [
            {"steps": 10, "max_length": 16, "global_batch_size": 8},
            {"steps": 10, "max_length": 24, "global_batch_size": 6},
        ],
        "pretrain__checkpoint_every_steps": 4,
        "pretrain__validate_every_steps": 10,
        "pretrain__mask_predictions": {"every_steps": 10, "num_guesses": 1, "sentences": ["the [MASK] sat."]},
        "runtime__compile": "on",
        "runtime__packing": "on",
        "runtime__micro_batch_tokens": 48,
    }
    alone, job = (pretrain_job(inputs, tmp_path / name, **changes) for name in ("alone", "killed"))
    assert alone.model.hidden_dropout_prob == alone.model.attention_probs_dropout_prob == 0.1
    processes.finish(processes.start(inputs, alone.run_folder, changes))
    for step, saved in ((7, (-1, 4)), (15, (4, 8, 10, 12))):
        dying = processes.kill_at("gradients", step - max(newest_checkpoint(job), 0))
        process = processes.start(inputs, job.run_folder, changes, before=dying)
        process.join(timeout=600)
        assert process.exitcode == -9
        assert newest_checkpoint(job) in saved  # the last one may have been on its way to the disk
    processes.finish(processes.start(inputs, job.run_folder, changes))
    assert_ended_as(alone, job)
    assert "uncompiled" not in processes.output_of(job.run_folder).read_text()


def test_other_processes_workers_and_micro_batches_go_on_to_the_same_end_to_rounding(inputs, tmp_path):
    """1 -> 2 -> 1 processes, none of which was told to stop; shares have different numbers of targets (promise 3)."""
    changes = {
        "pretrain__phases": [{"steps": 50, "max_length": 16, "global_batch_size": 7}],
        "pretrain__checkpoint_every_steps": 3,
    }
    alone = pretrain_job(inputs, tmp_path / "alone", **changes)
    processes.finish(processes.start(inputs, alone.run_folder, changes))

    moved = pretrain_job(inputs, tmp_path / "moved", **changes)
    padded = {**changes, "runtime__packing": "off", "runtime__micro_batch_size": 2}
    first = processes.start(inputs, moved.run_folder, padded, before=processes.hold_at_step(20, tmp_path / "never"))
    processes.wait_for(lambda: newest_checkpoint(moved) >= 10, first)
    processes.kill(first)
    packed = {**changes, "runtime__packing": "on", "runtime__micro_batch_tokens": 32, "runtime__num_workers": 1}
    held = processes.hold_at_step(45, tmp_path / "never")
    begun = newest_checkpoint(moved)
    ranks = processes.start_ranks(inputs, [moved.run_folder] * 2, packed, before=held)
    processes.wait_for(lambda: newest_checkpoint(moved) >= begun + 15, ranks[0])
    processes.kill(*ranks)
    processes.finish(processes.start(inputs, moved.run_folder, {**changes, "runtime__num_workers": 2}))

    expected, found = newest_state(alone), newest_state(moved)
    torch.testing.assert_close(found["model"], expected["model"], rtol=1e-3, atol=2e-5)
    assert len(curve(alone)) == len(curve(moved))
    for (step, left), (other_step, right) in zip(curve(alone), curve(moved), strict=True):
        assert step == other_step
        assert left == pytest.approx(right, rel=1e-3, abs=1e-6)


def killed_after_a_checkpoint(inputs, run_folder):
    job = pretrain_job(inputs, run_folder)
    before = processes.hold_at_step(20, run_folder.with_name("never"))
    process = processes.start(inputs, job.run_folder, {}, before=before)
    processes.wait_for(lambda: newest_checkpoint(job) >= 8, process)
    processes.kill(process)
    return job


def test_a_rank_that_does_not_see_the_checkpoint_of_the_first_says_which_and_ends_all(inputs, tmp_path):
    job = killed_after_a_checkpoint(inputs, tmp_path / "shared")
    ranks = processes.start_ranks(inputs, [job.run_folder, tmp_path / "own"], {})
    for rank in ranks:
        rank.join(timeout=600)
    assert [rank.exitcode for rank in ranks] == [1, 1]
    step, folder = newest_checkpoint(job), tmp_path / "own" / "checkpoints"
    message = f"rank 1 on {socket.gethostname()} does not see the checkpoint of step {step} in {folder}"
    for folder in (tmp_path / "own", job.run_folder):
        assert message in processes.output_of(folder).read_text()


def test_a_damaged_checkpoint_that_the_first_rank_skips_is_skipped_by_all(inputs, tmp_path):
    job = killed_after_a_checkpoint(inputs, tmp_path / "shared")
    other = tmp_path / "other" / "checkpoints"
    other.parent.mkdir()
    shutil.copytree(job.checkpoints_folder, other)
    processes.finish(processes.start(inputs, job.run_folder, {}))
    shutil.copytree(job.checkpoints_folder, other, dirs_exist_ok=True)
    damaged = job.checkpoints_folder / f"step-{max(CheckpointFolder(other, keep=9).steps):08d}.pt"
    damaged.write_bytes(damaged.read_bytes()[:-1000])
    processes.finish(*processes.start_ranks(inputs, [job.run_folder, other.parent], {}))
    assert f"{damaged}: its content does not match" in processes.output_of(job.run_folder).read_text()
    assert "does not match" not in processes.output_of(other.parent).read_text()
