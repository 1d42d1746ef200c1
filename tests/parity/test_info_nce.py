"""The contrastive loss against a reference written out pair by pair."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from bertline.modeling.losses import info_nce_sums

TEMPERATURE = 0.05


def vectors(num_pairs: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(num_pairs)
    a = torch.randn(num_pairs, 7, generator=generator)
    b = a + 2 * torch.randn(num_pairs, 7, generator=generator)
    return a.requires_grad_(), b.requires_grad_()


def written_out(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    """Equation 4 of InfoNCE in both directions, without a matrix and without a library's cross-entropy."""

    def cosine(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one.detach() @ other.detach() / (one.detach().norm() * other.detach().norm())

    loss = found = 0.0
    for queries, others in ((a, b), (b, a)):
        for i in range(len(queries)):
            scores = [float(cosine(queries[i], other)) / TEMPERATURE for other in others]
            loss -= math.log(math.exp(scores[i]) / sum(map(math.exp, scores))) / 2
            found += (scores[i] == max(scores)) / 2
    return loss, found


@pytest.mark.parametrize("num_pairs", [1, 2, 5, 16])
def test_loss_and_partners_found_are_those_of_the_definition(num_pairs: int) -> None:
    a, b = vectors(num_pairs)
    loss, found = info_nce_sums(a, b, torch.ones(num_pairs, dtype=torch.bool), temperature=TEMPERATURE)
    expected_loss, expected_found = written_out(a, b)
    assert loss.item() == pytest.approx(expected_loss, rel=1e-5, abs=1e-6)
    assert found.item() == expected_found


def test_cosines_are_compared_in_full_precision_under_autocast() -> None:
    a = torch.nn.functional.normalize(torch.randn(4, 384, generator=torch.Generator().manual_seed(0)), dim=-1)
    b = F.normalize(a + 0.001 * torch.randn(4, 384, generator=torch.Generator().manual_seed(1)), dim=-1)
    is_used = torch.ones(4, dtype=torch.bool)
    expected = info_nce_sums(a, b, is_used, temperature=0.001)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(info_nce_sums(a, b, is_used, temperature=0.001)[0], expected)
