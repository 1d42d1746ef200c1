"""Rows of the table of learning.py, for the terminal and for README."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One of the four trainings, with means over the seeds."""

    name: str
    """Exact name of the side: engine and optimizer."""
    steps: float
    seconds: float
    loss: float
    """Held-out loss, nats."""


def rows_of(figures: Mapping[str, Any]) -> list[Row]:
    """Return one row for each of the four trainings."""
    steps = figures["arguments"]["steps"]
    return [
        Row(figures["ours"], steps, figures["time_s"], figures["loss_ours"]),
        Row(
            figures["ours_same_optimizer"], steps, figures["time_s_same_optimizer"], figures["loss_ours_same_optimizer"]
        ),
        Row(figures["peer"], steps, figures["time_s_peer"], figures["loss_peer_equal_steps"]),
        Row(
            figures["peer"],
            figures["steps_peer_equal_time"],
            figures["time_s_peer_equal_time"],
            figures["loss_peer_equal_time"],
        ),
    ]
