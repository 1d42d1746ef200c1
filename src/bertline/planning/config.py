"""Configuration of the planner (conf/plan.yaml)."""

from __future__ import annotations

import math
from dataclasses import dataclass

THIS_MACHINE = "cpu"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanConfig:
    """Hardware, budget and size of the text."""

    device: str
    """`cpu` for this machine's processor, or a name in `planning.hardware`; converted to lower case."""
    num_devices: int
    """Number of devices of the run."""
    devices_per_node: int
    """Number of devices of one machine, joined by NVLink or PCIe; more than these share gradients over the network."""
    network_gbit: float
    """Network of each device between machines, in Gbit/s."""
    price_per_hour: float | None
    """Price of one device per hour, in any currency; None omits costs."""
    hours: float | None
    """Time budget in hours, on all devices together, to find the best use for. None forecasts the configured run."""
    lengths: tuple[int, ...] | None
    """Sequence lengths to plan the hours with: 90 % of the steps for all but the last, 10 % for the last (arXiv
    1810.04805, A.2). None keeps those of the configured phases; on a GPU, 128 if all of them are shorter."""
    max_epochs: float | None
    """Maximum number of epochs to plan the hours with; None: until a token has been a target four times on average."""
    pipeline: bool
    """Whether to forecast the whole default pipeline on this machine, in one line, and nothing else."""
    corpus_tokens: float | None
    """Number of tokens of the text, if it is not on this machine; None looks at artifacts/ and `corpus.path`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", self.device.lower())  # users write A100
        for name in ("num_devices", "devices_per_node"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        if self.device == THIS_MACHINE and self.num_devices != 1:
            raise ValueError(f"num_devices is {self.num_devices}, but device is {THIS_MACHINE}, this machine: give 1")
        for name in ("hours", "max_epochs", "corpus_tokens", "network_gbit"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be above 0 and finite, or null, found {value}")
        if self.price_per_hour is not None and not 0 <= self.price_per_hour < math.inf:
            raise ValueError(f"price_per_hour must not be negative, found {self.price_per_hour}")
        if self.lengths is not None and (not self.lengths or min(self.lengths) < 8):
            raise ValueError(f"lengths must be numbers of at least 8, or null, found {list(self.lengths)}")
