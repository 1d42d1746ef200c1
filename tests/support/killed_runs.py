"""Runs that are killed, or get a signal, as they compute a loss."""

from __future__ import annotations

import numpy as np
import torch

import finetuning_inputs
import finished_tasks
import tiny
from bertline.finetuning.finetune import fine_tune
from bertline.finetuning.job import FineTuningJob, TaskSplit
from bertline.tokenization.tokenizer import Tokenizer


class KilledError(Exception):
    pass


def job_of_kind(folder, name, *, taught=False, **config):
    """A job of several batches an epoch; with a teacher, also on unlabelled rows."""
    one = finished_tasks.finish(name, folder)
    encoded = one.kind.encode(one.rows, Tokenizer.load(one.folder))
    soft = one.kind.soft_targets(one.model, encoded, tiny.machine()) if taught else None
    split = TaskSplit(rows=one.rows, encoded=encoded, soft_targets=soft)
    settings = {"batch_size": 2, "num_epochs": 3, "early_stopping_epochs": 3, **config}
    return FineTuningJob(
        kind=one.kind, config=finetuning_inputs.fine_tuning(**settings), encoder="pretrained",
        encoder_folder=one.folder.parent / "encoder", train=split, dev=split, seed=3, machine=tiny.machine(),
        runtime=tiny.runtime(), unlabelled=split if taught else None, checks=(0.1, 0.6),
    )  # fmt: skip


def ended(job, after=-1, kill=None, told=None):
    """Run a job that `kill` ends as it computes the loss after some; returns the outcome and the number of losses."""
    count, loss = 0, type(job.kind).loss

    def counted(*args):
        nonlocal count
        if count == after:
            if kill is None:
                raise KilledError
            kill()
        count += 1
        return loss(job.kind, *args)

    job.kind.loss = counted
    try:
        result = fine_tune(job, on_check=None if told is None else told.append)
    finally:
        del job.kind.loss
    weights = {name: tensor.clone() for name, tensor in result.model.state_dict().items()}
    return (weights, result.checks, result.dev.scores, result.dev.calibration, result.dev.statistics), count


def assert_same(first, second):
    torch.testing.assert_close(first[0], second[0], rtol=0, atol=0)
    assert first[1:-1] == second[1:-1]
    assert np.array_equal(first[-1], second[-1], equal_nan=True)
