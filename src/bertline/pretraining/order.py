"""The order of the examples: a permutation for each epoch that is computed on demand and never stored."""

from __future__ import annotations

import numpy as np

from bertline.foundation.seeds import generator

_NUM_ROUNDS = 6
# The two multipliers of splitmix64's finaliser (Steele, Lea, Flood, OOPSLA 2014), which spreads every input bit.
_SPREAD_1 = np.uint64(0xBF58476D1CE4E5B9)
_SPREAD_2 = np.uint64(0x94D049BB133111EB)


def shuffled(positions: np.ndarray, size: int, *, seed: int, epoch: int) -> np.ndarray:
    """Return the examples at these positions of an epoch's order.

    The order is a keyed permutation of `0 .. size - 1`: a Feistel network over the next power of four, applied
    repeatedly until the value is below `size` (cycle walking). Every position costs the same, so a resumed run starts
    anywhere at once, and no process holds a table of the whole order.

    Args:
        positions: Integers in `[0, size)`, any shape.
        size: Number of examples in an epoch, at least 1.
        seed: `pretrain.seed`.
        epoch: Number of completed passes over the examples.

    Returns:
        int64 example ids in `[0, size)`, with the shape of `positions`; over all positions, every id occurs once.

    References:
        Black and Rogaway, Ciphers with Arbitrary Finite Domains (CT-RSA 2002), methods 2 and 3.

    Example:
        >>> shuffled(np.arange(10), 10, seed=0, epoch=0).tolist()
        [8, 6, 1, 2, 5, 3, 9, 0, 7, 4]
    """
    half_bits = max(1, -(-(size - 1).bit_length() // 2))
    keys = generator(seed, "order", epoch).integers(0, 2**63, size=_NUM_ROUNDS, dtype=np.uint64)
    walked = _permute(positions.astype(np.uint64), half_bits, keys)
    while (outside := walked >= size).any():
        walked[outside] = _permute(walked[outside], half_bits, keys)
    return walked.astype(np.int64)


def _permute(values: np.ndarray, half_bits: int, keys: np.ndarray) -> np.ndarray:
    """Apply the Feistel network once to values of `2 * half_bits` bits."""
    mask, shift = np.uint64((1 << half_bits) - 1), np.uint64(half_bits)
    left, right = values >> shift, values & mask
    for key in keys:
        left, right = right, left ^ (_spread(right ^ key) & mask)
    return (left << shift) | right


def _spread(values: np.ndarray) -> np.ndarray:
    values = (values ^ (values >> np.uint64(30))) * _SPREAD_1
    values = (values ^ (values >> np.uint64(27))) * _SPREAD_2
    return values ^ (values >> np.uint64(31))
