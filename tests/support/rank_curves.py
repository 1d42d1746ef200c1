"""The curve of one training on different numbers of ranks, for tests on the CPU and on GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pretraining_processes as processes
from pretraining_inputs import NO_DROPOUT, curve, pretrain_job, write_inputs

STEPS = 200
# Seven sequences per step: of four ranks, three take two and one takes one. Without dropout, whose masks on GPUs are
# per rank.
CHANGES = {
    **NO_DROPOUT,
    "pretrain__phases": [{"steps": STEPS, "max_length": 16, "global_batch_size": 7}],
    "pretrain__checkpoint_every_steps": STEPS,
    "pretrain__validate_every_steps": 100,
    "pretrain__mask_predictions": {"every_steps": STEPS, "num_guesses": 1, "sentences": []},
}


def curve_of(folder: Path, num_ranks: int, changes: dict[str, Any]) -> list[tuple[int, dict[str, float]]]:
    """Train on the inputs in `folder` and return the rows of metrics."""
    changes, run_folder = {**CHANGES, **changes}, folder / f"{num_ranks}-ranks"
    if num_ranks == 1:
        processes.finish(processes.start(folder, run_folder, changes))
    else:
        processes.finish(*processes.start_ranks(folder, [run_folder] * num_ranks, changes))
    return curve(pretrain_job(folder, run_folder, **changes))


def assert_same_curves(folder: Path, sizes: list[int], changes: dict[str, Any], *, rel: float) -> None:
    """Train once with each number of ranks; the losses must be equal to rounding at every row, and fall."""
    write_inputs(folder)
    alone = curve_of(folder, 1, changes)
    losses = [row["train/mlm_loss"] for _, row in alone if "train/mlm_loss" in row]
    assert len(losses) == STEPS / 20
    assert losses[-1] < losses[0] - 0.5
    for size in sizes:
        found = curve_of(folder, size, changes)
        assert [step for step, _ in found] == [step for step, _ in alone]
        for (step, expected), (_, row) in zip(alone, found, strict=True):
            assert row == pytest.approx(expected, rel=rel, abs=1e-4), f"{size} ranks, step {step}"
