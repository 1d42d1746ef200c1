"""What bertline relies on in Lightning, and why some of its conveniences are not used."""

from __future__ import annotations

import pytest
import torch
from pytorch_lightning import LightningModule, Trainer
from torch.utils.data import DataLoader


class OneWeight(LightningModule):
    """Its loss is the weight times the batch's mean, so that the gradient shows what the loss was multiplied by."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.gradients: list[float] = []

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        return self.weight * batch.mean()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        assert self.weight.grad is not None
        self.gradients.append(self.weight.grad.item())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


def fitted(accumulated: int) -> OneWeight:
    module = OneWeight()
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = Trainer(max_steps=1, accelerator="cpu", accumulate_grad_batches=accumulated, **quiet)
    trainer.fit(module, DataLoader(torch.ones(4), batch_size=1))
    return module


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("accumulated", [1, 4])
def test_each_micro_batch_loss_is_divided_by_their_number_so_the_global_mean_undoes_it(accumulated: int) -> None:
    # Four micro-batches of gradient 1 would sum to 4; Lightning's division makes it 1 again.
    assert fitted(accumulated).gradients == pytest.approx([1.0])
