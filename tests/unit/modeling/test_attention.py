"""Attention: three kinds, one answer."""

from __future__ import annotations

import pytest
import torch

from bertline.modeling.attention import AttentionKind, attend, attention_device, packed_scope, padded_scope

KINDS: tuple[AttentionKind, ...] = ("eager", "plain", "sdpa")


def heads(length: int = 7) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 2, 3, length, 5, generator=generator)
    return query, key, value


def mask(length: int = 7) -> torch.Tensor:
    return (torch.arange(length) < torch.tensor([[length], [3]])).long()


@pytest.mark.parametrize("padded", [True, False])
def test_the_kinds_agree(padded: bool) -> None:
    scope = padded_scope(mask() if padded else None)
    expected = attend(*heads(), scope, kind="eager").context
    for kind in KINDS:
        torch.testing.assert_close(attend(*heads(), scope, kind=kind).context, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padding_has_no_influence_at_all(kind: AttentionKind, dtype: torch.dtype) -> None:
    query, key, value = (tensor.to(dtype) for tensor in heads())
    scope = padded_scope(mask())
    before = attend(query, key, value, scope, kind=kind).context
    key[1, :, 3:], value[1, :, 3:] = 50.0, -70.0
    after = attend(query, key, value, scope, kind=kind).context
    assert torch.equal(before, after)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_of_padding_alone_gives_no_nan(kind: AttentionKind) -> None:
    scope = padded_scope(torch.zeros(2, 7, dtype=torch.long))
    assert attend(*heads(), scope, kind=kind).context.isfinite().all()


def test_eager_keeps_what_it_computed() -> None:
    query, key, value = heads()
    attended = attend(query, key, value, padded_scope(mask()), kind="eager")
    torch.testing.assert_close(attended.probabilities.sum(-1), torch.ones(2, 3, 7))
    assert attended.probabilities[1, :, :, 3:].max() == 0
    torch.testing.assert_close(attended.scores[0, 0, 1, 2], query[0, 0, 1] @ key[0, 0, 2] / 5**0.5)
    torch.testing.assert_close(attended.context, attended.probabilities @ value)


@pytest.mark.parametrize("kind", KINDS)
def test_in_packed_rows_a_sequence_is_attended_to_as_if_alone(kind: AttentionKind) -> None:
    query, key, value = heads()
    sequence_ids = torch.tensor([[1, 1, 1, 2, 2, 2, 2], [3, 3, 3, 3, 3, 0, 0]])
    scope = packed_scope(sequence_ids, torch.tensor([0, 3, 7, 12, 14], dtype=torch.int32), kind)
    context = attend(query, key, value, scope, kind=kind).context
    for row, start, end in ((0, 0, 3), (0, 3, 7), (1, 0, 5)):
        alone = (heads[row : row + 1, :, start:end] for heads in (query, key, value))
        expected = attend(*alone, padded_scope(None), kind="eager").context[0]
        torch.testing.assert_close(context[row, :, start:end], expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_drops_and_keeps_the_mean(kind: AttentionKind) -> None:
    torch.manual_seed(0)
    query, key, _ = heads()
    ones = torch.ones(2, 3, 7, 5)
    everything = padded_scope(None)
    drawn = torch.stack([attend(query, key, ones, everything, kind=kind, dropout_prob=0.3).context for _ in range(150)])
    assert drawn.std() > 0.05
    assert drawn.mean().item() == pytest.approx(1.0, abs=0.02)


def test_a_cpu_is_described_without_asking_cuda() -> None:
    found = attention_device(torch.device("cpu"), "bf16")
    assert (found.type, found.precision, found.compute_capability) == ("cpu", "bf16", None)
