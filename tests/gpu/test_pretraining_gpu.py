"""Pretraining on a CUDA device."""

import torch

import pretraining_inputs
from bertline.modeling.attention import attention_device
from bertline.pretraining.plan import pretraining_attention
from bertline.pretraining.run import run_pretraining
from bertline.training.devices import Ranks, resolve_device, resolve_machine, resolve_precision
from pretraining_inputs import NO_DROPOUT
from pretraining_inputs import weights as final_weights


def test_the_gpu_trains_like_the_cpu_to_rounding(tmp_path):
    pretraining_inputs.write_inputs(tmp_path)
    on_cpu = pretraining_inputs.pretrain_job(tmp_path, tmp_path / "cpu", **NO_DROPOUT)
    on_gpu = pretraining_inputs.pretrain_job(tmp_path, tmp_path / "gpu", runtime__device="cuda", **NO_DROPOUT)
    run_pretraining(on_cpu)
    run_pretraining(on_gpu)
    for name, expected in final_weights(on_cpu).items():
        torch.testing.assert_close(final_weights(on_gpu)[name], expected, rtol=5e-3, atol=1e-4, msg=name)


def test_packed_rows_train_like_padded_ones_to_rounding(tmp_path):
    pretraining_inputs.write_inputs(tmp_path)
    weights = {}
    for packing in ("off", "on"):
        changes = {"runtime__device": "cuda", "runtime__packing": packing, "pretrain__precision": "bf16"}
        job = pretraining_inputs.pretrain_job(tmp_path, tmp_path / packing, **changes, **NO_DROPOUT)
        device = attention_device(resolve_machine(job.runtime, "bf16").device, "bf16")
        attention = pretraining_attention(job.runtime, job.model, device, 16)
        assert attention.kind == ("varlen" if packing == "on" else "sdpa")
        run_pretraining(job)
        weights[packing] = final_weights(job)
    for name, expected in weights["off"].items():
        torch.testing.assert_close(weights["on"][name], expected, rtol=5e-2, atol=5e-3, msg=name)


def test_auto_takes_the_gpu_and_bf16_where_it_has_it(tmp_path):
    pretraining_inputs.write_inputs(tmp_path)
    changes = {"runtime__device": "auto", "runtime__compile": "auto", "pretrain__precision": "auto"}
    job = pretraining_inputs.pretrain_job(tmp_path, tmp_path / "run", **changes)
    assert resolve_device(job.runtime, Ranks()).type == "cuda"
    assert resolve_precision("auto", torch.device("cuda")) == (
        "bf16" if torch.cuda.get_device_capability() >= (8, 0) else "fp32"
    )
    figures = run_pretraining(job)
    assert figures["steps"] == 30 and figures["val/mlm_loss"] < 5
