"""Probes: measurements during training. A recipe passes them in; training does not know what they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from bertline.modeling.bert import MaskedLanguageModel
from bertline.training.devices import Machine


class Probe(Protocol):
    """Measurement before the first step, every `every_steps` steps, and after the last step.

    A probe must not change the model, its mode or the course of training. Probes run on every rank in the same order,
    so they may communicate; only the first rank should write files.
    """

    every_steps: int

    def probe(self, step: int) -> Mapping[str, float]:
        """Measure after `step` finished steps. The returned metrics are written to metrics.jsonl under that step."""
        ...

    def keep_up_to(self, step: int) -> None:
        """Drop the probe's own records after `step`: training resumes from there and creates them again."""
        ...


MakeProbe = Callable[[MaskedLanguageModel, Machine], Probe]
"""Factory of a probe for the model that is about to be trained, on the device where the model will be. The caller of a
run passes in probes this way."""


def is_due(probe: Probe, step: int, num_steps: int) -> bool:
    """Return whether a probe must run after `step` finished steps of `num_steps`."""
    return step % probe.every_steps == 0 or step == num_steps
