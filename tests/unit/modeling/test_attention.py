"""Attention: three kinds, one answer."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from bertline.modeling import attention as attention_file
from bertline.modeling.attention import AttentionKind, attend, packed_scope, padded_scope
from bertline.modeling.attention_choice import AttentionDevice, choose_attention, lacking_for_varlen

KINDS: tuple[AttentionKind, ...] = ("eager", "plain", "sdpa")


def heads(length: int = 7) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 2, 3, length, 5, generator=generator)
    return query, key, value


def mask(length: int = 7) -> torch.Tensor:
    return (torch.arange(length) < torch.tensor([[length], [3]])).long()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padding_has_no_influence_at_all(kind: AttentionKind, dtype: torch.dtype) -> None:
    query, key, value = (tensor.to(dtype) for tensor in heads())
    scope = padded_scope(mask())
    before = attend(query, key, value, scope, kind=kind).context
    key[1, :, 3:], value[1, :, 3:] = 50.0, -70.0
    after = attend(query, key, value, scope, kind=kind).context
    assert torch.equal(before, after)
    nothing_but_padding = padded_scope(torch.zeros(2, 7, dtype=torch.long))
    assert attend(query, key, value, nothing_but_padding, kind=kind).context.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_drops_and_keeps_the_mean(kind: AttentionKind) -> None:
    torch.manual_seed(0)
    query, key, _ = heads()
    ones = torch.ones(2, 3, 7, 5)
    everything = padded_scope(None)
    drawn = torch.stack([attend(query, key, ones, everything, kind=kind, dropout_prob=0.3).context for _ in range(150)])
    assert drawn.std() > 0.05
    assert drawn.mean().item() == pytest.approx(1.0, abs=0.02)


@pytest.fixture
def kernels_allowed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each call of PyTorch's attention might have taken cuDNN, if the tensors were on a GPU."""
    allowed: list[bool] = []
    compute, avoid = F.scaled_dot_product_attention, attention_file._may_get_nan_from_cudnn

    def recorded(*tensors: torch.Tensor, **options: Any) -> torch.Tensor:
        allowed.append(torch.backends.cuda.cudnn_sdp_enabled())
        return compute(*tensors, **options)

    monkeypatch.setattr(attention_file.F, "scaled_dot_product_attention", recorded)
    monkeypatch.setattr(attention_file, "_may_get_nan_from_cudnn", lambda _, *lengths: avoid("cuda", *lengths))
    return allowed


@pytest.mark.parametrize(("length", "safe"), [(64, False), (192, False), (320, False), (63, True), (128, True)])
def test_on_a_gpu_masked_rows_of_64_modulo_128_do_not_take_cudnn(kernels_allowed, length, safe) -> None:
    attend(*heads(length), padded_scope(mask(length)), kind="sdpa")
    attend(*heads(length), padded_scope(None), kind="sdpa")
    query, key, value = heads(length)
    attend(query[:, :, :64], key, value, padded_scope(mask(length)), kind="sdpa")
    sequence_ids = mask(length)
    attend(*heads(length), packed_scope(sequence_ids, torch.tensor([0]), "sdpa"), kind="sdpa")
    # Without a mask all is well. The third call reads 64 positions of each row, if there are so many.
    assert kernels_allowed == [safe, True, safe and length < 64, safe]
    assert torch.backends.cuda.cudnn_sdp_enabled()


CPU = {precision: AttentionDevice(type="cpu", precision=precision) for precision in ("fp32", "bf16")}
AMPERE = AttentionDevice(type="cuda", precision="bf16", compute_capability=(8, 0))


@pytest.mark.parametrize(
    ("precision", "length", "dropout_prob", "kind"),
    [
        ("bf16", 512, 0.0, "plain"),
        ("bf16", 1024, 0.0, "sdpa"),
        ("fp32", 256, 0.0, "plain"),
        ("fp32", 512, 0.0, "sdpa"),
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
        ({"packs": False}, "runtime.packing"),
        ({"type": "cpu", "compute_capability": None}, "an NVIDIA GPU"),
    ],
)
def test_each_thing_that_varlen_needs_is_named_when_it_is_missing(changes, said) -> None:
    changes = dict(changes)
    model = {
        name: changes.pop(name, usual) for name, usual in (("head_size", 64), ("dropout_prob", 0.0), ("packs", True))
    }
    (need,) = lacking_for_varlen(dataclasses.replace(AMPERE, **changes), **model)
    assert said in need
