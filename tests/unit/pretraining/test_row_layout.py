"""How rows and attention are chosen for each length, said in the log, and used."""

import dataclasses

import numpy as np
import pytest
import torch

import tiny
from bertline.foundation.errors import MachineError
from bertline.modeling import layers
from bertline.modeling.attention_choice import AttentionChoice, AttentionDevice
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.initialization import initialize
from bertline.pretraining.callbacks import AttentionByLength
from bertline.pretraining.compact import expanded
from bertline.pretraining.config import PhaseConfig
from bertline.pretraining.data import MaskedExamples, StepDataset
from bertline.pretraining.interval import num_pairs
from bertline.pretraining.module import PreTrainingLosses
from bertline.pretraining.plan import Plan
from bertline.pretraining.row_layout import (
    RowLayout,
    layouts_in_words,
    pretraining_attention,
    row_layouts,
)
from bertline.pretraining.run import run_pretraining
from bertline.training.devices import Ranks

CPU = AttentionDevice(type="cpu", precision="bf16")
AMPERE = AttentionDevice(type="cuda", precision="bf16", compute_capability=(8, 0))
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
VOCAB_SIZE = 61


@pytest.fixture(scope="module")
def full(pretraining, tmp_path_factory):
    """Inputs whose sequences of 16 are all full, and those of 32 are not."""
    folder = tmp_path_factory.mktemp("full")
    pretraining.write_inputs(folder, lengths=(16, 32), full_lengths=(16,))
    return folder


def stores(folder) -> dict:
    return {length: MaskedExamples(folder / "examples", "train", length).store for length in (16, 32)}


def line(folder, model, device, **runtime) -> str:
    asked, found = tiny.runtime(**runtime), stores(folder)
    attention = {length: pretraining_attention(asked, model, device, length) for length in found}
    return layouts_in_words(row_layouts(asked, found, attention), found, attention, model, device)


def test_the_log_says_where_and_which_rows_and_attention_each_length_has_and_why(full):
    said = line(full, tiny.model_config(**NO_DROPOUT), CPU)
    assert said.startswith("on cpu in bf16, attention dropout 0: rows of 16 tokens, all full, attention plain (the fas")
    assert "; packed rows of 32 tokens (" in said and "if padded), attention plain (" in said
    assert "padded rows of 32 tokens (" in line(full, tiny.model_config(), CPU, packing="off")


def test_the_log_says_what_keeps_the_gpu_from_its_fastest_attention(full):
    said = line(full, tiny.model_config(attention_probs_dropout_prob=0.1), AMPERE)
    assert "attention dropout 0.1" in said
    assert "attention sdpa (varlen, which is faster, needs model.attention_probs_dropout_prob=0 " in said
    assert "attention varlen (" in line(full, tiny.model_config(**NO_DROPOUT), AMPERE)
    odd = tiny.model_config(hidden_size=24, num_attention_heads=2, **NO_DROPOUT)
    assert "is 12)" in line(full, odd, AMPERE)


def test_the_log_says_that_another_attention_than_the_one_asked_for_is_faster(full):
    assert "attention sdpa (asked for; auto would take plain: " in line(
        full, tiny.model_config(), CPU, attention="sdpa"
    )


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


def test_the_kind_is_set_by_the_width_of_the_rows():
    class Module:
        model = BertForPreTraining(tiny.model_config(), vocab_size=VOCAB_SIZE, pad_token_id=0)

    callback = AttentionByLength({8: AttentionChoice("sdpa", ""), 16: AttentionChoice("eager", "")})
    for length, kind in ((8, "sdpa"), (16, "eager"), (8, "sdpa")):
        micro_batch = {"input_ids": torch.zeros(3, length, dtype=torch.long)}
        callback.on_train_batch_start(None, Module, {"micro_batches": [micro_batch]}, 0)
        assert [layer.attention for layer in Module.model.bert.layers] == [kind, kind]


def steps(folder, length, rows=None) -> StepDataset:
    plan = Plan([PhaseConfig(steps=9, max_length=length, global_batch_size=8)], num_steps=9)
    examples = {length: MaskedExamples(folder / "examples", "train", length)}
    return StepDataset(plan, examples, {length: RowLayout(packed=False, rows=rows)}, ranks=Ranks(), seed=0)


def test_full_rows_carry_no_mask_and_others_do_in_every_batch(full):
    for length in (16, 32):
        micro_batches = [one for step in range(9) for one in steps(full, length, rows=3)[step]["micro_batches"]]
        assert {"attention_mask" in expanded(one) for one in micro_batches} == {length == 32}
    assert steps(full, 16)[0]["num_tokens"] == 8 * 16
    (micro_batch,) = steps(full, 16)[0]["micro_batches"]
    assert int(num_pairs(micro_batch)) == 8 * 16**2


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
    torch.testing.assert_close(found["without"][0], found["with"][0])
    for key, expected in found["with"][1].items():
        torch.testing.assert_close(found["without"][1][key], expected, msg=key)
    assert np.isfinite(found["with"][0]["mlm_loss"].item())
