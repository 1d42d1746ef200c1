"""Time of a training step on several devices: computing, and the all-reduce of the gradients that it cannot hide.

A model, not a measurement. benchmarks/scaling.py fits `Link.efficiency`, `Link.latency_s` and `Overlap` to one and two
processes and checks the prediction for four.

References:
    Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009: in a ring,
    each of n devices sends 2 (n - 1) / n times the bytes, in 2 (n - 1) messages.
    Li et al., "PyTorch Distributed", arXiv 2006.15704, section 3.2: gradients are reduced in buckets, each as soon as
    the backward pass has filled it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

BUCKET_BYTES = 25 * 1024 * 1024
"""Size of DDP's buckets (`bucket_cap_mb`, arXiv 2006.15704, section 3.2.3)."""
_GRADIENT_BYTES = 4
"""Gradients are fp32, also in a bf16 run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """What a device sends through."""

    bytes_per_s: float
    """Nominal bandwidth of each device, in one direction."""
    efficiency: float
    """Share of it that an all-reduce of large tensors reaches."""
    latency_s: float
    """Duration of one message without content."""
    tree: bool = False
    """Whether the latency grows with the logarithm of the devices, as with the trees of NCCL (since 2.4), not with
    their number."""

    def all_reduce_s(self, num_bytes: float, num_devices: int) -> float:
        """Return the seconds to add up a tensor over all devices.

        >>> link = Link(bytes_per_s=1e9, efficiency=1.0, latency_s=0.0)
        >>> link.all_reduce_s(1e9, 1), link.all_reduce_s(1e9, 2), link.all_reduce_s(1e9, 4)
        (0.0, 1.0, 1.5)
        """
        if num_devices == 1:
            return 0.0
        messages = 2 * (math.ceil(math.log2(num_devices)) if self.tree else num_devices - 1)
        volume = 2 * (num_devices - 1) / num_devices * num_bytes
        return volume / (self.bytes_per_s * self.efficiency) + messages * self.latency_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Computing:
    """Seconds of one step on one device, without communication."""

    forward_s: float
    """Before the last backward pass: the forward pass, and all micro-batches but the last."""
    backward_s: float
    """The last backward pass, during which buckets become ready."""
    update_s: float
    """The optimizer's step."""

    @property
    def total_s(self) -> float:
        """Seconds of the whole step."""
        return self.forward_s + self.backward_s + self.update_s


def step_s(computing: Computing, buckets: Sequence[float], num_devices: int, link: Link, *, overlap: float) -> float:
    """Return the seconds of a step.

    Args:
        computing: The step on one device.
        buckets: Bytes of each bucket, in the order in which they become ready, at equal distances in the backward pass.
        num_devices: Devices, each with its own part of the batch.
        link: What connects them.
        overlap: 0: communication begins after the backward pass. 1: each bucket is sent as soon as it is ready and the
            one before it has been sent, and the backward pass does not get slower.

    Example:
        Two buckets of 0.5 s each; the first is hidden by the second half of the backward pass:

        >>> link = Link(bytes_per_s=1e9, efficiency=1.0, latency_s=0.0)
        >>> computing = Computing(forward_s=0.5, backward_s=1.0, update_s=0.0)
        >>> step_s(computing, [5e8, 5e8], 2, link, overlap=1.0), step_s(computing, [5e8, 5e8], 2, link, overlap=0.0)
        (2.0, 2.5)
    """
    times = [link.all_reduce_s(num_bytes, num_devices) for num_bytes in buckets]
    sent = 0.0
    for index, time in enumerate(times):
        ready = computing.backward_s * (index + 1) / len(times)
        sent = max(sent, ready) + time
    hidden = computing.forward_s + max(sent, computing.backward_s) + computing.update_s
    one_after_the_other = computing.total_s + sum(times)
    return one_after_the_other - overlap * (one_after_the_other - hidden)


def gradient_buckets(encoder_parameters: int, embedding_parameters: int) -> list[float]:
    """Return the bytes of the buckets of an encoder's gradients.

    The embeddings are last and in a bucket of their own: the output layer shares them, so that their gradient is
    complete only when the backward pass ends.

    >>> [round(bucket / 2**20) for bucket in gradient_buckets(15_000_000, 4_000_000)]
    [19, 19, 19, 15]
    """
    encoder = _GRADIENT_BYTES * encoder_parameters
    number = math.ceil(encoder / BUCKET_BYTES)
    return [*[encoder / number] * number, float(_GRADIENT_BYTES * embedding_parameters)]
