import dataclasses

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from bertline.training.devices import Machine, Ranks, resolve_machine
from bertline.training.trainer import build_trainer, run_trainer


class Slope(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen = []

    def training_step(self, batch, batch_idx):
        self.seen.append((batch.tolist(), torch.is_autocast_enabled("cpu")))
        return (self.weight - 1).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Data(pl.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(torch.arange(6), batch_size=2)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_training_leaves_no_files_says_nothing_and_keeps_the_order(
    runtime, tmp_path, monkeypatch, capfd, recwarn, precision
):
    monkeypatch.chdir(tmp_path)
    settings = runtime()
    module = Slope()
    machine = dataclasses.replace(resolve_machine(settings, "fp32"), precision=precision)
    trainer = build_trainer(machine, settings, callbacks=[], max_epochs=2, root=tmp_path)
    run_trainer(trainer, module, Data())
    assert [batch for batch, _ in module.seen] == [[0, 1], [2, 3], [4, 5]] * 2
    assert {autocast for _, autocast in module.seen} == {precision == "bf16"}
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().out == ""
    assert not [warning for warning in recwarn if "lightning" in str(warning.filename)]


def test_slurm_variables_do_not_bring_in_lightnings_requeueing(runtime, tmp_path, monkeypatch):
    for name, value in {"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "job", "SLURM_PROCID": "2"}.items():
        monkeypatch.setenv(name, value)
    settings = runtime()
    trainer = build_trainer(resolve_machine(settings, "fp32"), settings, callbacks=[], max_epochs=1, root=tmp_path)
    assert trainer.world_size == 1


@pytest.mark.parametrize("local_rank", [0, 3])
def test_each_rank_trains_on_its_gpu(runtime, tmp_path, monkeypatch, local_rank):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: None)
    rank = 4 + local_rank  # of the second node
    for name, value in {"RANK": rank, "LOCAL_RANK": local_rank, "WORLD_SIZE": 8, "GROUP_RANK": 1}.items():
        monkeypatch.setenv(name, str(value))
    settings = runtime(device="cuda", num_devices=4, num_nodes=2)
    device = torch.device("cuda", local_rank)
    ranks = Ranks(rank=rank, world_size=8, local_rank=local_rank)
    machine = Machine(device=device, precision="bf16", compile=False, ranks=ranks)
    trainer = build_trainer(machine, settings, callbacks=[], max_epochs=1, root=tmp_path)
    assert trainer.strategy.root_device == device
    assert (trainer.global_rank, trainer.world_size) == (rank, 8)
    trainer.strategy.cluster_environment.validate_settings(trainer.num_devices, trainer.num_nodes)
