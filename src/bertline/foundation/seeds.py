"""Named seeds: every random choice in bertline is a pure function of a root seed and a name."""

import hashlib

import numpy as np
import numpy.typing as npt


def seed_for(*parts: int | str) -> int:
    """Derive a seed in `[0, 2**64)` from a root seed and names of its purpose, the same on every
    platform and version.

    Parts of different types never collide (`1` and `"1"` differ), nor do groupings (`("ab", "c")`
    and `("a", "bc")`).
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        encoded = str(part).encode()
        digest.update(f"{type(part).__name__}:{len(encoded)}:".encode() + encoded)
    return int.from_bytes(digest.digest(), "little")


def spread_bits(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Let every bit of each number change all others: the finaliser of SplitMix64 (Steele, Lea and
    Flood 2014).

    A bijection of the numbers below 2**64.
    """
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def generator(*parts: int | str) -> np.random.Generator:
    """Return a NumPy generator (Philox, counter-based) for the named purpose."""
    return np.random.Generator(np.random.Philox(key=seed_for(*parts)))


def unit_interval(*parts: int | str) -> float:
    """Return a hash of the parts as a number in `[0, 1)`, for splits by identity instead of
    position."""
    return seed_for(*parts) / 2**64
