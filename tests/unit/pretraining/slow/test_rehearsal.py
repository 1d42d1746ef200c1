"""Each phase is rehearsed before the first step; the rehearsal finds what fits, and changes nothing."""

from __future__ import annotations

import pytest
import torch

import pretraining_inputs
import pretraining_processes as processes
from bertline.foundation.errors import MachineError
from bertline.pretraining import callbacks
from bertline.pretraining.module import PreTrainingLosses
from bertline.pretraining.run import run_pretraining
from pretraining_inputs import NO_DROPOUT, OPTIMIZERS, assert_same_weights

PHASES = [
    {"steps": 6, "max_length": 16, "global_batch_size": 8},
    {"steps": 4, "max_length": 24, "global_batch_size": 6},
]
TWO_PHASES = {"pretrain__phases": PHASES, "runtime__packing": "off"}


class Memory:
    """A device with memory for so many tokens at once, whose lack is an error; and what was asked of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most_tokens: float) -> None:
        self.shapes: list[tuple[int, int]] = []
        forward = PreTrainingLosses.forward

        def budgeted(losses: PreTrainingLosses, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            if losses.training:
                rows, length = batch["input_ids"].shape
                self.shapes.append((rows, length))
                if rows * length > most_tokens:
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return forward(losses, batch)

        monkeypatch.setattr(PreTrainingLosses, "forward", budgeted)
        monkeypatch.setattr(callbacks, "reports_lack_of_memory", lambda device: True)
        monkeypatch.setattr(callbacks.gc, "collect", int)  # seconds, with all that the tests of a process hold


def everything(job) -> dict[str, object]:
    state = pretraining_inputs.newest_state(job)
    return {"model": state["model"], "optimizer": state["optimizer"], "curve": pretraining_inputs.curve(job)}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_rehearsed_run_is_bitwise_one_that_was_not(make_job, monkeypatch, optimizer):
    changes = {**TWO_PHASES, "optimizer": OPTIMIZERS[optimizer], "model__hidden_dropout_prob": 0.1}
    plain, rehearsed = make_job("plain", **changes), make_job("rehearsed", **changes)
    run_pretraining(plain)
    memory = Memory(monkeypatch, most_tokens=float("inf"))
    run_pretraining(rehearsed)
    assert memory.shapes[:2] == [(8, 16), (6, 24)]
    assert len(memory.shapes) == 2 + 10
    assert_same_weights(everything(plain), everything(rehearsed))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_resumed_run_is_rehearsed_from_its_phase_on_and_keeps_its_state(make_job, monkeypatch, optimizer):
    changes = {**TWO_PHASES, "optimizer": OPTIMIZERS[optimizer], "pretrain__checkpoint_every_steps": 7}
    plain, rehearsed = make_job("plain", **changes), make_job("rehearsed", **changes)
    run_pretraining(plain)
    run_pretraining(rehearsed)
    for path in rehearsed.checkpoints_folder.glob("*10*"):
        path.unlink()
    memory = Memory(monkeypatch, most_tokens=float("inf"))
    run_pretraining(rehearsed)
    assert memory.shapes == [(6, 24)] * (1 + 3)
    assert_same_weights(everything(plain), everything(rehearsed))


@pytest.mark.parametrize("packing", ["off", "on"])
def test_the_largest_half_of_a_half_that_fits_is_taken_and_said(make_job, monkeypatch, capsys, packing):
    changes = {**TWO_PHASES, **NO_DROPOUT, "runtime__packing": packing}
    whole, cut = make_job("whole", **changes), make_job("cut", **changes)
    run_pretraining(whole)
    capsys.readouterr()
    memory = Memory(monkeypatch, most_tokens=60)
    run_pretraining(cut)
    output = "".join(capsys.readouterr())
    assert "rehearsed a step of 8 sequences of 16 tokens" in output
    assert "of 2 rows on each device" in output
    in_training = memory.shapes[-20:]
    assert all(rows * length <= 60 for rows, length in in_training)
    assert set(in_training) <= {(2, 16), (3, 16), (2, 24), (1, 24)}
    expected, found = (everything(job)["model"] for job in (whole, cut))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_where_not_one_row_fits_the_run_ends_before_the_first_step_with_the_figures(make_job, monkeypatch):
    Memory(monkeypatch, most_tokens=20)  # enough for the first phase alone
    job = make_job(**TWO_PHASES)
    with pytest.raises(
        MachineError, match=r"phases\[1\].*1 row\(s\) of 24 tokens.*GB of memory when it failed.*smaller model"
    ):
        run_pretraining(job)
    assert not list(job.checkpoints_folder.glob("*"))


def test_all_ranks_take_what_fits_on_the_one_with_the_least_memory(inputs, tmp_path):
    changes = {**TWO_PHASES, **NO_DROPOUT}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    processes.finish(*processes.start_ranks(inputs, [whole] * 2, changes))
    limited = processes.limit_memory(tokens_of_ranks=[1000, 50])
    processes.finish(*processes.start_ranks(inputs, [cut] * 2, changes, before=limited))
    output = processes.output_of(cut).read_text()
    assert "rehearsed a step of 8 sequences of 16 tokens: 2 micro-batch(es) of 2 rows on each device" in output
    assert "rehearsed a step of 6 sequences of 24 tokens: 2 micro-batch(es) of 2 rows on each device" in output
    expected, found = (
        pretraining_inputs.newest_state(pretraining_inputs.pretrain_job(inputs, folder))["model"]
        for folder in (whole, cut)
    )
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_where_masks_depend_on_the_micro_batch_a_resumed_run_keeps_it_and_ends_where_it_does_not_fit(
    make_job, monkeypatch
):
    job = make_job("run", **TWO_PHASES, runtime__attention="sdpa", pretrain__checkpoint_every_steps=4)
    memory = Memory(monkeypatch, most_tokens=70)
    run_pretraining(job)
    assert memory.shapes[-2:] == [(2, 24)] * 2
    before = everything(job)

    def resumed(most_tokens):
        for path in job.checkpoints_folder.glob("*10*"):
            path.unlink()
        memory = Memory(monkeypatch, most_tokens=most_tokens)
        run_pretraining(job)
        return memory.shapes[-1]

    assert resumed(1000) == (2, 24)
    assert_same_weights(before, everything(job))
    with pytest.raises(MachineError, match=r"2 row\(s\) of 24 tokens.*a resumed run keeps the one"):
        resumed(40)
