"""Promise 3, over ranks and accumulation at once: every target counts the same, wherever it is computed."""

import numpy as np
import pytest
import torch

import pretraining_processes as processes
from bertline.foundation.metrics_log import read_metrics
from bertline.pretraining.plan import RowLayout
from bertline.training.devices import Ranks
from pretraining_inputs import means_over_the_whole_batch, steps_of

CHANGES = {
    "model__hidden_dropout_prob": 0.0,
    "model__attention_probs_dropout_prob": 0.0,
    "objective__nsp_weight": 0.5,
    "schedule__num_warmup_steps": 0,
    # Shares of 7 and 8 sequences; of 3 each they make micro-batches of 3, 3, 1 and of 3, 3, 2.
    "pretrain__phases": [{"steps": 1, "max_length": 16, "global_batch_size": 15}],
}


def targets_of_micro_batches(job, *, rows: int, packed: bool) -> list[list[int]]:
    """For each of the two ranks."""
    steps = [
        steps_of(job, RowLayout(packed=packed, rows=rows), Ranks(rank=rank, world_size=2, local_rank=rank))[0]
        for rank in (0, 1)
    ]
    counts = [[int((batch["masked_labels"] != -100).sum()) for batch in step["micro_batches"]] for step in steps]
    assert [step["num_targets"] for step in steps] == [sum(of_rank) for of_rank in counts]
    return counts


@pytest.mark.parametrize(
    ("runtime", "rows", "packed"),
    [
        ({"runtime__packing": "off", "runtime__micro_batch_size": 3}, 3, False),
        ({"runtime__packing": "on", "runtime__micro_batch_tokens": 48}, 3, True),
    ],
    ids=["padded", "packed"],
)
def test_two_processes_of_unequal_micro_batches_have_the_gradients_and_the_losses_of_one_batch(
    make_job, inputs, tmp_path, runtime, rows, packed
):
    job = make_job("together", **CHANGES, **runtime)
    counts = targets_of_micro_batches(job, rows=rows, packed=packed)
    assert [len(of_rank) for of_rank in counts] == [3, 3]
    assert sum(counts[0]) != sum(counts[1]) and all(len(set(of_rank)) > 1 for of_rank in counts)

    recorded = tmp_path / "gradients"
    ranks = processes.start_ranks(
        inputs, [job.run_folder] * 2, {**CHANGES, **runtime}, before=processes.record_first_gradients(recorded)
    )
    processes.finish(*ranks)

    expected, metrics = means_over_the_whole_batch(job)
    for rank in (0, 1):
        found = torch.load(f"{recorded}.{rank}", weights_only=True)
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-7, msg=f"rank {rank}, {name}")
    (row,) = [row.metrics for row in read_metrics(job.metrics_path) if "train/mlm_loss" in row.metrics]
    assert {key: row[key] for key in metrics} == pytest.approx(metrics, rel=1e-5)


def test_these_micro_batches_tell_a_mean_of_means_from_the_mean(make_job):
    """So the test above cannot pass if every micro-batch, or every rank, counted the same."""
    job = make_job(**CHANGES)
    counts = targets_of_micro_batches(job, rows=3, packed=False)
    weights = np.concatenate(counts) / np.sum(counts[0] + counts[1])
    of_micro_batches = np.full(6, 1 / 6)
    of_ranks = np.concatenate([np.array(of_rank) / sum(of_rank) / 2 for of_rank in counts])
    for wrong in (of_micro_batches, of_ranks):
        assert np.abs(wrong / weights - 1).max() > 0.02
