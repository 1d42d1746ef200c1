"""Which attention is chosen, and what is said of it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from bertline.modeling.attention_choice import (
    AttentionDevice,
    choose_attention,
    lacking_for_varlen,
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


@pytest.mark.parametrize("module", ["modeling.attention_choice", "pretraining.row_layout", "planning"])
def test_the_choice_needs_no_torch(module) -> None:
    code = f"import sys, bertline.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
