"""Word embeddings that start from co-occurrences: the counts, the information in them, and the run that follows."""

import torch

import pretraining_processes as processes
from bertline.pretraining import start
from bertline.pretraining.run import run_pretraining


def test_two_ranks_start_from_the_same_embeddings_as_one(pretraining, inputs, tmp_path):
    changes = {**pretraining.NO_DROPOUT, "pretrain__initial_embeddings": "cooccurrence", "pretrain__max_steps": 4}
    alone, together = tmp_path / "alone", tmp_path / "together"
    processes.finish(processes.start(inputs, alone, changes))
    processes.finish(*processes.start_ranks(inputs, [together] * 2, changes))
    ours, theirs = (
        pretraining.newest_state(pretraining.pretrain_job(inputs, run))["model"] for run in (together, alone)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_a_stopped_run_resumes_without_counting_again_and_ends_in_the_same_weights(pretraining, make_job, monkeypatch):
    whole, part = (make_job(run, pretrain__initial_embeddings="cooccurrence") for run in ("whole", "part"))
    run_pretraining(whole)
    pretraining.stop_after(part, 15, monkeypatch)
    monkeypatch.setattr(start, "cooccurrence_embeddings", None)  # calling it would be an error
    run_pretraining(part)
    pretraining.assert_same_weights(*(pretraining.newest_state(job)["model"] for job in (part, whole)))
