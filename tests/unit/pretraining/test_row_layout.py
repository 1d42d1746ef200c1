"""How rows and attention are chosen for each length, said in the log, and used."""

import dataclasses

import numpy as np
import pytest
import torch

import tiny
from bertline.foundation.errors import MachineError
from bertline.modeling import layers
from bertline.modeling.attention_choice import AttentionChoice
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.initialization import initialize
from bertline.pretraining.config import PhaseConfig
from bertline.pretraining.data import MaskedExamples, StepDataset, expanded
from bertline.pretraining.module import PreTrainingLosses
from bertline.pretraining.plan import Plan, RowLayout, frozen_layout, resumed_layout
from bertline.pretraining.run import run_pretraining
from bertline.training.devices import Ranks

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
VOCAB_SIZE = 61


@pytest.fixture(scope="module")
def full(pretraining, tmp_path_factory):
    """Inputs whose sequences of 16 are all full, and those of 32 are not."""
    folder = tmp_path_factory.mktemp("full")
    pretraining.write_inputs(folder, lengths=(16, 32), full_lengths=(16,))
    return folder


def test_varlen_where_it_cannot_be_had_is_an_error_that_says_what_is_missing(make_job):
    with pytest.raises(MachineError, match=r"varlen, which needs an NVIDIA GPU, .*or use attention=auto"):
        run_pretraining(make_job(runtime__attention="varlen"))


def test_each_phase_computes_attention_by_the_kind_of_its_length(make_job, monkeypatch, capsys):
    """128 then 512, made small: `sdpa` from 24 tokens on. A phase that is never reached decides nothing."""
    monkeypatch.setattr("bertline.modeling.attention_choice._FUSED_FROM_ON_CPU", {"fp32": 24, "bf16": 24})
    taken, attend = [], layers.attend

    def watched(query, key, *arguments, kind, **options):
        if torch.is_grad_enabled():
            taken.append((key.shape[2], kind))
        return attend(query, key, *arguments, kind=kind, **options)

    monkeypatch.setattr(layers, "attend", watched)
    phases = [{"steps": 2, "max_length": length, "global_batch_size": 4} for length in (16, 24, 16)]
    job = make_job(
        pretrain__phases=[*phases, {"steps": 9, "max_length": 32, "global_batch_size": 4}],
        pretrain__max_steps=6,
        model__attention_probs_dropout_prob=0.0,
        runtime__packing="off",
    )
    run_pretraining(job)
    per_phase = [(16, "plain")] * 4 + [(24, "sdpa")] * 4 + [(16, "plain")] * 4  # 2 steps of 2 layers
    assert taken == per_phase
    (said,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("pretraining on cpu")]
    assert said.count("attention plain") == said.count("attention sdpa") == 1 and "32 tokens" not in said


def steps(folder, length, rows=None) -> StepDataset:
    plan = Plan([PhaseConfig(steps=9, max_length=length, global_batch_size=8)], num_steps=9)
    examples = {length: MaskedExamples(folder / "examples", "train", length)}
    return StepDataset(plan, examples, {length: RowLayout(packed=False, rows=rows)}, ranks=Ranks(), seed=0)


def test_full_rows_carry_no_mask_and_others_do_in_every_batch(full):
    for length in (16, 32):
        micro_batches = [one for step in range(9) for one in steps(full, length, rows=3)[step]["micro_batches"]]
        assert {"attention_mask" in expanded(one) for one in micro_batches} == {length == 32}
    assert steps(full, 16)[0]["num_tokens"] == 8 * 16
    assert steps(full, 16)[0]["num_pairs"] == 8 * 16**2


@pytest.mark.parametrize("kind", ["eager", "plain", "sdpa"])
def test_full_rows_have_the_losses_and_gradients_that_they_have_with_a_mask(full, kind):
    config = dataclasses.replace(tiny.model_config(**NO_DROPOUT), max_position_embeddings=32)
    model = BertForPreTraining(config, vocab_size=VOCAB_SIZE, pad_token_id=0, attention=kind)
    initialize(model, config, seed=0)
    losses = PreTrainingLosses(model, tiny.mlm_nsp())
    (sent,) = steps(full, 16)[2]["micro_batches"]
    micro_batch = expanded(sent)
    found = {}
    for name, batch in {
        "without": micro_batch,
        "with": {**micro_batch, "attention_mask": torch.ones_like(micro_batch["input_ids"])},
    }.items():
        model.zero_grad()
        sums = losses(batch)
        (sums["mlm_loss"] + sums["nsp_loss"]).backward()
        found[name] = (sums, {key: weight.grad.clone() for key, weight in model.named_parameters()})
    torch.testing.assert_close(found["without"], found["with"])
    assert np.isfinite(found["with"][0]["mlm_loss"].item())


DROPOUT = tiny.model_config()


def at_16(*, packed=False, rows=None, attention="sdpa") -> dict[int, RowLayout]:
    return {16: RowLayout(packed=packed, rows=rows, attention=AttentionChoice(attention, ""))}


WHOLE, OF_FOUR = at_16(), at_16(packed=True, rows=4)


def resumed(frozen, layouts, *, device="cuda", num_ranks=2, model=DROPOUT):
    """The layout at length 16, and the warning."""
    layout, _, warning = resumed_layout(frozen, layouts, model=model, device=device, num_ranks=num_ranks)
    return layout[16], warning


@pytest.mark.parametrize("attention", ["plain", "sdpa"])
def test_dropout_masks_depend_on_the_layout_on_a_gpu_and_in_fused_attention(attention):
    def drawn_on(device, **model):
        here = {"model": dataclasses.replace(DROPOUT, **model), "device": device, "num_ranks": 2}
        return frozen_layout(at_16(attention=attention), **here)["drawn_on"]

    assert drawn_on("cuda") == drawn_on("cuda", attention_probs_dropout_prob=0.0) == "2 cuda devices"
    assert drawn_on("cpu") == (None if attention == "plain" else "2 cpu devices")
    assert drawn_on("cpu", attention_probs_dropout_prob=0.0) is None
    assert drawn_on("cuda", **NO_DROPOUT) is None


def test_a_run_resumed_on_its_own_kind_of_machine_keeps_the_layout_that_a_rehearsal_found():
    frozen = frozen_layout(OF_FOUR, model=DROPOUT, device="cuda", num_ranks=2)
    assert resumed(frozen, at_16(packed=True)) == (OF_FOUR[16], None)
    _, warning = resumed(frozen, at_16(packed=True, rows=8))
    assert "micro-batches of the runtime section are not used" in warning
    assert "(4 packed rows of 16 tokens at once, sdpa)" in warning
    assert resumed({}, WHOLE) == (WHOLE[16], None)


@pytest.mark.parametrize(
    ("device", "num_ranks", "now"), [("cuda", 1, "1 cuda device"), ("cpu", 2, "2 cpu devices"), ("mps", 2, "2 mps ")]
)
def test_a_run_resumed_elsewhere_takes_the_layout_of_the_machine_and_says_that_masks_differ(device, num_ranks, now):
    frozen = frozen_layout(OF_FOUR, model=DROPOUT, device="cuda", num_ranks=2)
    layout, warning = resumed(frozen, WHOLE, device=device, num_ranks=num_ranks)
    assert layout == WHOLE[16]
    assert "began with the dropout masks of 2 cuda devices; from here on they are those of " + now in warning


def test_a_wrapped_model_draws_its_masks_if_it_drops_anything():
    def drawn_on(**model):
        config = tiny.model_config(**NO_DROPOUT, family="modernbert", **model)
        return frozen_layout(at_16(attention="plain"), model=config, device="cpu", num_ranks=1)["drawn_on"]

    assert drawn_on(own={"embedding_dropout": 0.1}) == "1 cpu device"
    assert drawn_on(own={"embedding_dropout": 0.0}) is None
