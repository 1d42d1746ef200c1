"""Each phase is rehearsed on a CUDA device before the first step."""

import re

import pytest
import torch

import pretraining_inputs
from bertline.foundation.errors import MachineError
from bertline.pretraining import callbacks
from bertline.pretraining.run import run_pretraining
from bertline.training.devices import _missing

LARGE = {
    "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
    "max_position_embeddings": 512,
}  # fmt: skip
OPTIMIZERS = ("adamw", "muon")


@pytest.fixture
def little_memory():
    """Leave this process a fraction of the memory."""
    yield torch.cuda.set_per_process_memory_fraction
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def job_of(tmp_path, *, phases, model=None, **changes):
    pretraining_inputs.write_inputs(tmp_path, lengths=tuple(phase["max_length"] for phase in phases), num_train=300)
    return pretraining_inputs.pretrain_job(
        tmp_path,
        tmp_path / "run",
        runtime__device="cuda",
        pretrain__precision="bf16",
        pretrain__phases=phases,
        pretrain__validation_sequences=4,
        pretrain__validate_every_steps=1000,
        pretrain__checkpoint_every_steps=1000,
        **{f"model__{name}": value for name, value in (model or {}).items()},
        **changes,
    )


@pytest.mark.parametrize("compile_setting", ["off", "on"])
@pytest.mark.parametrize("packing", ["off", "on"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_phase_is_rehearsed_and_then_trained(tmp_path, capsys, optimizers, optimizer, packing, compile_setting):
    if compile_setting == "on" and _missing(torch.device("cuda", 0)) is not None:
        pytest.skip(_missing(torch.device("cuda", 0)))
    phases = [
        {"steps": 4, "max_length": 64, "global_batch_size": 24},  # a length of 64 modulo 128
        {"steps": 3, "max_length": 128, "global_batch_size": 10},
    ]
    changes = {"runtime__packing": packing, "runtime__compile": compile_setting, "optimizer": optimizers[optimizer]}
    figures = run_pretraining(job_of(tmp_path, phases=phases, model={"max_position_embeddings": 128}, **changes))
    assert figures["steps"] == 7
    said = re.findall(r"rehearsed a step of (\d+) sequences of (\d+) tokens: 1 micro", "".join(capsys.readouterr()))
    assert said == [("24", "64"), ("10", "128")]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_rehearsal_leaves_weights_state_and_generators_as_they_were(tmp_path, monkeypatch, optimizers, optimizer):
    seen = {}
    rehearse = callbacks.Rehearsal.on_train_start

    def watched(callback, trainer, module):
        optimizer = module.optimizers(use_pl_optimizer=False)
        before = [weight.detach().clone() for weight in module.parameters()]
        memory = torch.cuda.memory_allocated()
        generators = torch.get_rng_state(), torch.cuda.get_rng_state()
        rehearse(callback, trainer, module)
        assert all(torch.equal(*pair) for pair in zip(before, module.parameters(), strict=True))
        assert not any(optimizer.state.values())
        assert all(weight.grad is None for weight in module.parameters())
        assert torch.equal(generators[0], torch.get_rng_state())
        assert torch.equal(generators[1], torch.cuda.get_rng_state())
        torch._C._cuda_clearCublasWorkspaces()  # kept for later products, 64 MiB on an H200
        seen["left"] = torch.cuda.memory_allocated() - memory

    monkeypatch.setattr(callbacks.Rehearsal, "on_train_start", watched)
    phases = [{"steps": 2, "max_length": 64, "global_batch_size": 24}]
    model, section = {"max_position_embeddings": 64}, optimizers[optimizer]
    run_pretraining(job_of(tmp_path, phases=phases, model=model, optimizer=section))
    assert seen["left"] < 2 << 20  # neither state nor activations are left


def test_memory_that_cannot_hold_a_row_ends_the_run_before_its_first_step(tmp_path, little_memory, optimizers):
    phases = [
        {"steps": 1, "max_length": 64, "global_batch_size": 8},
        {"steps": 1, "max_length": 512, "global_batch_size": 8},
    ]
    job = job_of(tmp_path, phases=phases, model=LARGE, optimizer=optimizers["adamw"])
    # Weights, gradients and AdamW's state take 16 bytes for each of 300 million weights, about 4.9 GB.
    little_memory(5.0e9 / torch.cuda.get_device_properties(0).total_memory)
    with pytest.raises(
        MachineError, match=r"does not fit in the memory of cuda:0 \([\d.]+ of [\d.]+ GB of memory when it failed"
    ):
        run_pretraining(job)
    assert not list(job.checkpoints_folder.glob("*"))
