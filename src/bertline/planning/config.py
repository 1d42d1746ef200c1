"""What the planner is asked (conf/plan.yaml)."""

from __future__ import annotations

import math
from dataclasses import dataclass

THIS_MACHINE = "cpu"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanConfig:
    """Hardware, budget and what is known of the text."""

    device: str
    """`cpu` for this machine's processor, or a name in `planning.hardware`; in lower case, however it was given."""
    num_devices: int
    price_per_hour: float | None
    """Of one device, in any currency; None leaves money out."""
    hours: float | None
    """None: what the present configuration takes. Else what these hours, on all devices together, are best used for."""
    lengths: tuple[int, ...] | None
    """Sequence lengths to plan the hours with: 90 % of the steps for all but the last, 10 % for the last (arXiv
    1810.04805, A.2). None keeps those of the present phases; on a GPU, 128 where all of them are shorter."""
    max_epochs: float | None
    """Most passes over the text to plan the hours with; None takes four times what makes every token a target once."""
    corpus_tokens: float | None
    """Tokens of the text, where it is not here; None looks at artifacts/ and `corpus.path`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", self.device.lower())  # people write A100
        if self.num_devices < 1:
            raise ValueError(f"num_devices must be at least 1, found {self.num_devices}")
        if self.device == THIS_MACHINE and self.num_devices != 1:
            raise ValueError(f"num_devices is {self.num_devices}, but device is {THIS_MACHINE}, this machine: give 1")
        for name in ("hours", "max_epochs", "corpus_tokens"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be above 0 and finite, or null, found {value}")
        if self.price_per_hour is not None and not 0 <= self.price_per_hour < math.inf:
            raise ValueError(f"price_per_hour must not be negative, found {self.price_per_hour}")
        if self.lengths is not None and (not self.lengths or min(self.lengths) < 8):
            raise ValueError(f"lengths must be numbers of at least 8, or null, found {list(self.lengths)}")
