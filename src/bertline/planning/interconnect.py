"""What connects the devices of a plan: assumptions about links, from data sheets, for `planning.communication`."""

from __future__ import annotations

import re

from bertline.planning.communication import Computing, Link

_GIGA = 1e9
# Gigabytes per second of each GPU in one direction, inside a node, by the vendors' data sheets (half of the printed sum
# of both directions). A pattern of the planner's names; the first that matches counts.
_INSIDE_NODE = (
    (r"b200", 900.0),  # NVLink 5
    (r"h100$|h200", 450.0),  # NVLink 4
    (r"a100", 300.0),  # NVLink 3
    (r"v100", 150.0),  # NVLink 2
    (r"rtx5090", 64.0),  # PCIe 5.0, 16 lanes
    (r"h100_pcie", 64.0),
    (r"t4", 16.0),  # PCIe 3.0, 16 lanes
    (r"", 32.0),  # PCIe 4.0, 16 lanes
)
_EFFICIENCY = 0.8
"""Cautious: NCCL's own tests reach 0.8 to 0.9 of a link with large tensors."""
_LATENCY_S = 10e-6
"""Of a message, in a kernel of NCCL: about 5 us over NVLink, 10 to 20 us over InfiniBand."""
OVERLAP = 0.9
"""Share of the communication that the backward pass can hide that it does hide; DDP's kernels take a few processors."""
# By FLOPs, the backward pass is two thirds of the rest of the step; the optimizer takes about 3 % (research on H200).
_UPDATE_SHARE = 0.03
_BACKWARD_SHARE = 2 / 3


def link_of(device: str, num_devices: int, *, devices_per_node: int, network_gbit: float) -> Link:
    """Return the narrowest link that an all-reduce passes.

    Args:
        device: Name in `planning.hardware`.
        num_devices: Devices that train together.
        devices_per_node: Devices of a machine; up to that many are joined by NVLink or PCIe alone.
        network_gbit: Network of each device between machines, in Gbit/s.
    """
    inside = next(speed for pattern, speed in _INSIDE_NODE if re.match(pattern, device)) * _GIGA
    across = network_gbit * _GIGA / 8
    slowest = inside if num_devices <= devices_per_node else min(inside, across)
    return Link(bytes_per_s=slowest, efficiency=_EFFICIENCY, latency_s=_LATENCY_S, tree=True)


def computing_of(seconds: float, *, passes: int = 1) -> Computing:
    """Return the parts of a step on one device that takes `seconds`, with gradient accumulation over `passes`."""
    update = _UPDATE_SHARE * seconds
    backward = (seconds - update) * _BACKWARD_SHARE / passes
    return Computing(forward_s=seconds - update - backward, backward_s=backward, update_s=update)
