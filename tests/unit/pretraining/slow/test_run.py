from bertline.pretraining.run import run_pretraining
from bertline.training.checkpoints import CheckpointFolder
from pretraining_inputs import again, assert_same_weights, stop_after, weights


def test_where_dropout_masks_depend_on_the_layout_a_resumed_run_keeps_its_own_and_says_so(
    make_job, monkeypatch, capsys
):
    fused = {"runtime__attention": "sdpa", "runtime__packing": "off", "pretrain__max_steps": 20}
    began = {**fused, "runtime__micro_batch_size": 4}
    whole = make_job("whole", **began)
    run_pretraining(whole)
    job = make_job("stopped", **began)
    stop_after(job, 15, monkeypatch)
    asked = {"runtime__micro_batch_size": 2, "runtime__packing": "on", "runtime__attention": "plain"}
    run_pretraining(again(make_job, job, **{**fused, **asked}))
    assert_same_weights(weights(whole), weights(job))
    said = "".join(capsys.readouterr())
    assert "packing, attention and micro-batches of the runtime section are not used" in said
    assert "(4 padded rows of 16 tokens at once, sdpa)" in said


def test_a_checkpoint_is_saved_when_the_last_one_is_old_and_the_weights_are_the_same(make_job):
    phases = [{"steps": 12, "max_length": 16, "global_batch_size": 8}]
    every_ten = {"pretrain__phases": phases, "pretrain__checkpoint_every_steps": 10, "pretrain__keep_checkpoints": 20}
    jobs = [make_job(str(every_s), **every_ten, runtime__checkpoint_every_s=every_s) for every_s in (None, 1e-6, 600.0)]
    for job in jobs:
        run_pretraining(job)
    saved = [CheckpointFolder(job.checkpoints_folder, keep=20).steps for job in jobs]
    assert saved == [[10, 12], list(range(1, 13)), [10, 12]]
    assert_same_weights(weights(jobs[1]), weights(jobs[0]))
