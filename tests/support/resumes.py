"""Whether a pretraining that was killed or stopped, and started again, ended as if left alone."""

from __future__ import annotations

from pathlib import Path

import torch

from bertline.foundation.files import read_json_lines
from bertline.pretraining.job import PretrainJob
from bertline.training.checkpoints import CheckpointFolder
from pretraining_inputs import curve, newest_state
from tiny import load_pretraining_model


def newest_checkpoint(job: PretrainJob) -> int:
    """Step of the newest checkpoint; -1 before there is one."""
    return max(CheckpointFolder(job.checkpoints_folder, keep=1).steps, default=-1)


def assert_ended_as(alone: PretrainJob, job: PretrainJob) -> None:
    """The same weights, optimizer, place, curve, mask predictions, and nothing left lying about."""
    expected, found = newest_state(alone), newest_state(job)
    for name in ("step", "model", "optimizer", "place", "interval", "num_tokens"):
        torch.testing.assert_close(expected[name], found[name], rtol=0, atol=0, msg=name)
    assert curve(job) == curve(alone)
    assert read_json_lines(job.mask_predictions_path) == read_json_lines(alone.mask_predictions_path)
    results = [load_pretraining_model(folder).state_dict() for folder in (alone.result_folder, job.result_folder)]
    torch.testing.assert_close(*results, rtol=0, atol=0)
    assert _names_in(job.run_folder) == _names_in(alone.run_folder)


def _names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
