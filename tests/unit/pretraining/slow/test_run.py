import signal

import pytest

from bertline.pretraining.probes import MaskPredictionProbe
from bertline.pretraining.run import run_pretraining
from bertline.training.interruption import TrainingInterrupted
from pretraining_inputs import again, assert_same_weights, curve, signal_at, weights


def test_workers_change_nothing(make_job):
    alone, helped = make_job("alone"), make_job("helped", runtime__num_workers=2)
    run_pretraining(alone)
    run_pretraining(helped)
    assert_same_weights(weights(alone), weights(helped))
    assert curve(alone) == curve(helped)


def stopped_after(step, job, monkeypatch):
    with monkeypatch.context() as patched, pytest.raises(TrainingInterrupted):
        signal_at(MaskPredictionProbe, step, signal.SIGTERM, patched)
        run_pretraining(job)
    return job


def test_where_dropout_masks_depend_on_the_layout_a_resumed_run_keeps_its_own_and_says_so(
    make_job, monkeypatch, capsys
):
    fused = {"runtime__attention": "sdpa", "runtime__packing": "off", "pretrain__max_steps": 20}
    began = {**fused, "runtime__micro_batch_size": 4}
    whole = make_job("whole", **began)
    run_pretraining(whole)
    job = stopped_after(15, make_job("stopped", **began), monkeypatch)
    asked = {"runtime__micro_batch_size": 2, "runtime__packing": "on", "runtime__attention": "plain"}
    run_pretraining(again(make_job, job, **{**fused, **asked}))
    assert_same_weights(weights(whole), weights(job))
    said = "".join(capsys.readouterr())
    assert "packing, attention and micro-batches of the runtime section are not used" in said
    assert "(4 padded rows of 16 tokens at once, sdpa)" in said
