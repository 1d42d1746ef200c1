"""Fast dropout on a CPU, and masks that the layout of the rows does not change.

On a CPU, PyTorch draws one random number per element, sequentially: 5 ns each (AMD EPYC), 15 ns in compiled code. At a
rate of 0.1 that is nearly half of a compiled training step of 2 layers with hidden size 128. This module draws two
random numbers per tensor and hashes them with the index of each element: about a dozen operations, which the compiler
fuses into the loop that uses them (0.1 ns per element) and recomputes in the backward pass, so no mask is stored.

In pretraining, the random numbers of a site are the same for all micro-batches and ranks of a step, and an element is
known by its token's sequence and position instead of its index (`TokenMasks`).
"""

from collections.abc import Mapping
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, library, nn

_LEVELS = 1 << 32
_SMALLEST = -(1 << 31)
_NEXT_HEAD = 0x9E3779B1 - _LEVELS  # odd, so that no two heads have the same multiple; 2^32 over the golden ratio


class TokenMasks(NamedTuple):
    """What determines the dropped elements, whatever the layout of the rows: one key per site, one number per token.

    No two tokens of a step have the same number. Where two are nearer than the hidden size, a part of one mask recurs
    in the other: with a probability of 2^-22 at hidden size 512.
    """

    keys: Tensor
    """[sites + 1, 2] random int32, those of `mask_keys`."""
    tokens: Tensor
    """[B, S] random int32, those of `token_numbers`."""
    positions: Tensor | None = None
    """Positions whose masks they are, see `at`; None: all."""

    @classmethod
    def of(cls, batch: Mapping[str, Tensor]) -> Self | None:
        """Return the masks of a micro-batch, `dropout_keys` and `dropout_tokens`; None if it has none."""
        return cls(batch["dropout_keys"], batch["dropout_tokens"]) if "dropout_keys" in batch else None

    def at(self, positions: Tensor) -> Self:
        """Return the masks of some positions: [B, Q] indices into the rows, or [Q] indices into the flattened rows."""
        return self._replace(positions=positions)

    def of_states(self, hidden_size: int, site: int) -> Tensor:
        """Return the places [B, S, H] of the hidden states at a site."""
        return self._numbers(site)[..., None] + torch.arange(site, site + hidden_size, dtype=torch.int32)

    def of_probabilities(self, keys: Self, num_heads: int, site: int) -> Tensor:
        """Return the places [B, N, Q, S] of the probabilities with which these tokens attend to those of `keys`."""
        heads = torch.arange(site, site + num_heads, dtype=torch.int32) * _NEXT_HEAD
        # Doubled, so that two tokens that attend to each other do not do so with the same mask.
        doubled = (keys._numbers(site) * 2)[:, None, None, :]
        return (self._numbers(site)[:, None, :] + heads[:, None])[..., None] + doubled

    def _numbers(self, site: int) -> Tensor:
        # The site is added first: the compiler stores what is computed from a result that several sites share.
        numbers = self.tokens + site
        if self.positions is None:
            return numbers
        return (
            numbers.gather(1, self.positions) if self.positions.dim() > 1 else numbers.flatten()[self.positions][None]
        )


def mask_keys(seed: int, num_sites: int) -> Tensor:
    """Return random int32 [num_sites + 1, 2] for a step: a pair for each site, and one for the numbers of tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(_SMALLEST, -_SMALLEST, (num_sites + 1, 2), dtype=torch.int32, generator=generator)


def token_numbers(keys: Tensor, sequences: Tensor, positions: Tensor, max_length: int) -> Tensor:
    """Return a random int32 for each token of a step, by its sequence and its position in it (which is broadcast).

    Args:
        keys: See `TokenMasks`.
        sequences: int64 places of the sequences among those of the step.
        positions: int64, below `max_length`.
        max_length: The same for all tokens of a step.
    """
    return _mixed((sequences * max_length + positions).int(), keys[-1])


def dropout(
    values: Tensor, prob: float, *, site: int = 0, places: Tensor | None = None, keys: Tensor | None = None
) -> Tensor:
    """Set a random fraction of the values to zero and scale up the rest, so that the mean is preserved.

    On a CPU, `keys` determine the dropped values or, without them, the state of PyTorch's default generator, in eager
    and compiled mode alike.

    Args:
        values: Tensor of any shape; on a CPU, fewer than 2^31 elements.
        prob: Dropout rate in [0, 1).
        site: Number that differs between the calls in a compiled graph: the compiler merges identical calls.
        places: With keys, the places of `TokenMasks`, which are overwritten: int32, in the shape of `values`.
        keys: Keys of `TokenMasks`.

    Reference: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", JMLR 15, 2014.
    """
    if prob == 0:
        return values
    if values.device.type != "cpu":
        return F.dropout(values, prob)
    if keys is not None and places is not None:
        levels = _mixed(places, keys[site])
    else:
        key = torch.ops.bertline.dropout_keys(values, site)
        # Each site starts at a different number: results of equal index tensors that are used far apart would be
        # stored by the compiler instead of recomputed.
        numbers = torch.arange(site, site + values.numel(), dtype=torch.int32)
        levels = _mixed(numbers.view(values.shape), key)
    num_dropped = round(prob * _LEVELS)
    is_kept = levels >= num_dropped + _SMALLEST
    return (values * is_kept).mul_(_LEVELS / (_LEVELS - num_dropped))


def _mixed(places: Tensor, key: Tensor) -> Tensor:
    """Hash int32 places, in place: times a random odd factor, plus a random summand, mixed by a bijective 32-bit hash.

    Args:
        key: Random int32: the factor, whose lowest bit is set here, and the summand.

    Reference: Wellons, "Prospecting for Hash Functions" (2018): the shifts and factors of the hash.
    """
    factor, summand = key
    # In place: no difference for compiled code; eager code takes two thirds of the time.
    mixed = places.mul_(factor | 1).add_(summand)
    mixed.bitwise_xor_(_shifted(mixed, 16)).mul_(0x7FEB352D)
    mixed.bitwise_xor_(_shifted(mixed, 15)).mul_(0x846CA68B - _LEVELS)  # the same 32 bits as a signed number
    return mixed.bitwise_xor_(_shifted(mixed, 16))


def _shifted(words: Tensor, bits: int) -> Tensor:
    """Shift right with zero fill (logical shift); `>>` on signed integers repeats the sign bit."""
    return (words >> bits).bitwise_and_((1 << (32 - bits)) - 1)


# `torch.compile` does not trace into registered operators, so compiled and eager mode draw the same numbers.
_OPERATORS = library.Library("bertline", "FRAGMENT")
_OPERATORS.define("dropout_keys(Tensor like, int site) -> Tensor")


def _dropout_keys(like: Tensor, site: int) -> Tensor:
    """Return two random int32; `like` and `site` only distinguish one call from another."""
    return torch.randint(_SMALLEST, -_SMALLEST, (2,), dtype=torch.int32)


_OPERATORS.impl("dropout_keys", _dropout_keys, "CPU")


@library.register_fake("bertline::dropout_keys", lib=_OPERATORS)
def _(like: Tensor, site: int) -> Tensor:
    return torch.empty(2, dtype=torch.int32)


class Dropout(nn.Module):
    """Apply `dropout` at a rate `prob` in [0, 1) in training mode; the identity in evaluation mode."""

    def __init__(self, prob: float) -> None:
        super().__init__()
        self.p = prob
        self.site = 0
        """See `dropout`; set by `number_sites`."""

    @property
    def prob(self) -> float:
        """Dropout rate now: 0 in evaluation mode."""
        return self.p if self.training else 0.0

    def forward(self, values: Tensor, masks: TokenMasks | None = None) -> Tensor:
        """Return a tensor of the same shape, [B, S, H] if there are masks of its tokens."""
        if masks is None or not self.prob:
            return dropout(values, self.prob, site=self.site)
        places = masks.of_states(values.shape[-1], self.site)
        return dropout(values, self.prob, site=self.site, places=places, keys=masks.keys)


def number_sites(model: nn.Module) -> None:
    """Number the dropouts of a model 0, 1, 2, ... in the order in which its modules were added."""
    for site, module in enumerate(module for module in model.modules() if isinstance(module, Dropout)):
        module.site = site
