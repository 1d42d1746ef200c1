"""Which attention is chosen, and what is said of it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from bertline.modeling.attention_choice import (
    AttentionDevice,
    AttentionSetting,
    choose_attention,
    lacking_for_varlen,
    stores_scores,
)

CPU = {precision: AttentionDevice(type="cpu", precision=precision) for precision in ("fp32", "bf16")}
AMPERE = AttentionDevice(type="cuda", precision="bf16", compute_capability=(8, 0))


def lacking(**changes: Any) -> tuple[str, ...]:
    """Of a device and a model that lack nothing but what is said."""
    model = {"head_size": 64, "dropout_prob": 0.0, "packs": True}
    device = {"type": "cuda", "precision": "bf16", "compute_capability": (8, 0)}
    of_device = {key: value for key, value in changes.items() if key not in model}
    of_model = {key: value for key, value in changes.items() if key in model}
    return lacking_for_varlen(AttentionDevice(**{**device, **of_device}), **{**model, **of_model})


@pytest.mark.parametrize(
    ("precision", "length", "dropout_prob", "kind"),
    [
        ("bf16", 64, 0.0, "plain"),
        ("bf16", 512, 0.0, "plain"),
        ("bf16", 1024, 0.0, "sdpa"),
        ("fp32", 256, 0.0, "plain"),
        ("fp32", 512, 0.0, "sdpa"),
        ("bf16", 64, 0.1, "plain"),
        ("bf16", 2048, 0.1, "plain"),
        ("fp32", 512, 0.1, "plain"),
    ],
)
def test_auto_on_a_cpu_goes_by_length_number_format_and_dropout(precision, length, dropout_prob, kind) -> None:
    choice = choose_attention("auto", CPU[precision], length, dropout_prob=dropout_prob)
    assert choice.kind == kind
    assert ("dropout" in choice.reason) == (dropout_prob > 0)


@pytest.mark.parametrize("length", [64, 512, 2048])
def test_auto_on_other_devices_goes_by_what_varlen_lacks(length) -> None:
    assert choose_attention("auto", AMPERE, length, lacking_for_varlen=()).kind == "varlen"
    choice = choose_attention("auto", AMPERE, length, lacking_for_varlen=("this", "that"))
    assert choice == ("sdpa", "varlen, which is faster, needs this, that")
    assert choose_attention("auto", AMPERE, length).kind == "sdpa"  # rows are not packed
    assert choose_attention("auto", AttentionDevice(type="mps", precision="fp32"), length).kind == "sdpa"


@pytest.mark.parametrize("asked", ["eager", "plain", "sdpa"])
@pytest.mark.parametrize("device", [*CPU.values(), AMPERE], ids=str)
@pytest.mark.parametrize("dropout_prob", [0.0, 0.1])
def test_what_is_asked_for_is_taken_and_a_faster_one_is_named(asked: AttentionSetting, device, dropout_prob) -> None:
    choice = choose_attention(asked, device, 64, dropout_prob=dropout_prob)
    best = choose_attention("auto", device, 64, dropout_prob=dropout_prob)
    assert choice.kind == asked
    assert choice == best or f"auto would take {best.kind}" in choice.reason


def test_varlen_where_rows_are_not_packed_is_what_auto_takes() -> None:
    for device in (*CPU.values(), AMPERE):
        assert choose_attention("varlen", device, 64).kind == choose_attention("auto", device, 64).kind


def test_varlen_lacks_nothing_on_an_ampere_gpu_in_bf16_without_dropout() -> None:
    assert lacking() == lacking(compute_capability=(9, 0)) == lacking(head_size=256) == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dropout_prob": 0.1}, "model.attention_probs_dropout_prob=0"),
        ({"precision": "fp32"}, "pretrain.precision=bf16"),
        ({"head_size": 20}, "heads of a multiple of 8"),
        ({"head_size": 264}, "at most 256"),
        ({"compute_capability": (7, 5)}, "compute capability 8.0"),
        ({"has_varlen": False}, "torch.nn.attention.varlen"),
        ({"packs": False}, "runtime.packing"),
        ({"type": "cpu", "compute_capability": None}, "an NVIDIA GPU"),
    ],
)
def test_each_thing_that_varlen_needs_is_named_when_it_is_missing(changes, said) -> None:
    (need,) = lacking(**changes)
    assert said in need


def test_scores_are_stored_by_the_formula_and_by_the_fallback_of_a_cpu() -> None:
    assert stores_scores("plain", AMPERE, dropout_prob=0.0) and stores_scores("eager", AMPERE, dropout_prob=0.0)
    assert not stores_scores("sdpa", AMPERE, dropout_prob=0.1)
    assert not stores_scores("sdpa", CPU["bf16"], dropout_prob=0.0)
    assert stores_scores("sdpa", CPU["bf16"], dropout_prob=0.1)


@pytest.mark.parametrize("module", ["modeling.attention_choice", "pretraining.row_layout", "planning"])
def test_the_choice_needs_no_torch(module) -> None:
    code = f"import sys, bertline.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
