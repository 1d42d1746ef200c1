"""Gradients of masked attention on a CUDA device."""

import pytest
import torch

from bertline.modeling.attention import attend, padded_scope

LENGTHS = [63, 64, 128, 192, 320]


def inputs(length: int, *, scale: float) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Heads of two rows, the second half padding; with a large scale, the scores of many a row are far below zero."""
    generator = torch.Generator().manual_seed(length)
    heads = [torch.randn(2, 4, length, 64, generator=generator) for _ in range(3)]
    heads[0], heads[1] = heads[0].abs() * scale, -heads[1].abs() * scale
    mask = torch.arange(length) < torch.tensor([[length], [length // 2]])
    return [tensor.to("cuda", torch.bfloat16).requires_grad_() for tensor in heads], mask.long().cuda()


def gradients(attention, heads, mask) -> list[torch.Tensor]:
    context = attention(*heads, padded_scope(mask))
    return list(torch.autograd.grad(context.float().square().sum(), heads))


def fused(query, key, value, scope):
    return attend(query, key, value, scope, kind="sdpa").context


def formula(query, key, value, scope):
    """In double precision: bf16 rounds scores of several hundred to whole numbers."""
    query, key, value = query.double(), key.double(), value.double()
    return attend(query, key, value, scope._replace(bias=scope.bias.double()), kind="eager").context


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("scale", [1.0, 8.0], ids=["usual", "logsumexp below -88"])
@pytest.mark.parametrize("length", LENGTHS)
def test_gradients_of_masked_rows_are_finite_and_those_of_the_formula(length, scale, compiled):
    heads, mask = inputs(length, scale=scale)
    attention = torch.compile(fused, dynamic=False) if compiled else fused
    found, expected = gradients(attention, heads, mask), gradients(formula, heads, mask)
    for name, ours, theirs in zip(("query", "key", "value"), found, expected, strict=True):
        assert ours.isfinite().all(), name
        assert (ours.float() - theirs.float()).norm() <= 0.05 * theirs.float().norm() + 1e-2, name
