"""What `bertline.training.private_api` relies on: an upgrade of PyTorch or Lightning that changes it fails here."""

from __future__ import annotations

import inspect

import pytorch_lightning as pl
import torch
import torch._dynamo.config
from torch.nn.parallel import DistributedDataParallel

from bertline.training import private_api


def new_trainer() -> pl.Trainer:
    return pl.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")


def test_lightning_asks_for_sigterm_before_each_step_unless_it_is_left_to_bertline(monkeypatch) -> None:
    sent: list[torch.Tensor] = []
    monkeypatch.setattr(torch.distributed, "broadcast", lambda tensor, src: sent.append(tensor))
    trainer = new_trainer()
    loop = trainer.fit_loop.epoch_loop
    assert "self._broadcast_sigterm_tensor()" in inspect.getsource(type(loop).advance)
    loop._broadcast_sigterm_tensor()
    assert len(sent) == 1
    private_api.leave_sigterm_to_bertline(trainer)
    loop._broadcast_sigterm_tensor()
    assert len(sent) == 1


def test_the_forward_of_ddp_runs_in_the_context_that_a_rehearsal_enters() -> None:
    assert "_inside_ddp_forward()" in inspect.getsource(DistributedDataParallel._run_ddp_forward)


def test_the_number_of_compiled_shapes_is_raised_and_not_lowered() -> None:
    with torch._dynamo.config.patch(recompile_limit=8):
        private_api.compile_at_least(64)
        private_api.compile_at_least(2)
        assert torch._dynamo.config.recompile_limit == 64
