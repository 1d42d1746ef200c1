"""`python -m bertline.orchestration.torchrun ...`: PyTorch's torchrun, whose ranks have the time to save a checkpoint.

It differs in three ways. USR1 and USR2 are passed on to the ranks instead of killing torchrun. A repeated request to
stop (Slurm repeats TERM) does not end the wait for the ranks; only a second Ctrl-C does. And it waits longer after a
request to stop than after the failure of a rank, when the others may hang.
"""

from __future__ import annotations

from bertline.foundation.signals import RECEIVED, hold_signals, receive_signals

if __name__ == "__main__":
    hold_signals()

import signal
from typing import Any

from torch.distributed import run
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException, api

# To save a large model on a slow file system. Schedulers may give less, and kill all processes themselves.
_AFTER_REQUEST_S = 300
# A rank on the same node that is stopped or hangs in the kernel ends neither by itself nor by TERM. The others need a
# while to find out which rank failed.
_AFTER_FAILURE_S = 30


def _stop(number: int, frame: Any) -> None:
    """Make the agent stop the ranks with the same signal."""
    is_first = RECEIVED.first is None
    if RECEIVED.note(number) or is_first:
        raise SignalException(f"torchrun received {signal.Signals(number).name}", sigval=signal.Signals(number))


def main() -> None:
    """Run torchrun with the arguments of this process."""
    # The agent installs this function for TERM and Ctrl-C when it starts the ranks.
    api._terminate_process_handler = _stop
    shutdown = LocalElasticAgent._shutdown

    def patient(agent: LocalElasticAgent, *arguments: Any, **named: Any) -> None:
        named["timeout"] = _AFTER_FAILURE_S if RECEIVED.first is None else _AFTER_REQUEST_S
        shutdown(agent, *arguments, **named)

    LocalElasticAgent._shutdown = patient  # type: ignore[method-assign]
    receive_signals(_stop)
    run.main()


if __name__ == "__main__":
    main()
