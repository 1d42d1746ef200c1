"""Probes: what is looked at while a model trains. A recipe hands them in; training does not know what they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from bertline.modeling.bert import BertForPreTraining
from bertline.training.devices import Machine


class Probe(Protocol):
    """Something measured before the first step, every `every_steps` steps, and after the last one.

    A probe must not change the model, its mode or the course of training. It runs on every rank, in the same order, so
    that it may communicate; only the first rank should write files.
    """

    every_steps: int

    def probe(self, step: int) -> Mapping[str, float]:
        """Measure after `step` finished steps. What is returned goes to metrics.jsonl under that step."""
        ...

    def keep_up_to(self, step: int) -> None:
        """Drop own records after `step`: training goes on from there and makes them again."""
        ...


MakeProbe = Callable[[BertForPreTraining, Machine], Probe]
"""Makes a probe of the model that is about to be trained, on the device where it will be. This is how whoever starts a
run hands one in."""


def is_due(probe: Probe, step: int, num_steps: int) -> bool:
    """Whether a probe is to run after `step` finished steps of `num_steps`."""
    return step % probe.every_steps == 0 or step == num_steps
