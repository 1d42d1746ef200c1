"""A process with the signals of a data worker of pretraining, which does nothing."""

from __future__ import annotations

from multiprocessing.connection import Connection

from bertline.training.interruption import ignore_signals_in_worker


def wait(told: Connection) -> None:
    """Call `ignore_signals_in_worker` when told to, say so, and end when told to."""
    told.send("started")
    told.recv()
    ignore_signals_in_worker(0)
    told.send("ready")
    told.recv()
