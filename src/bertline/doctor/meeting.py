"""Meeting of the ranks: who they are, and a store through which they report, with a limit on every wait."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from bertline.foundation.errors import MachineError
from bertline.training.config import RuntimeConfig
from bertline.training.devices import Ranks
from bertline.training.nodes import adopt_srun_ranks, this_node


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Place of this process among the ranks."""

    ranks: Ranks
    host: str
    num_local_ranks: int = 1
    """Ranks on this host."""
    address: str = "127.0.0.1"
    port: int = 0
    owns_store: bool = True
    """Whether rank 0 serves the store; torchrun may serve it itself."""


def host_name(environment: Mapping[str, str]) -> str:
    """Return the name of this host, for messages: Slurm's, if it has one."""
    return environment.get("SLURMD_NODENAME") or socket.gethostname()


def place_of(environment: MutableMapping[str, str]) -> Place:
    """Read the place of this process from the variables of torchrun or srun; without them it is the only rank."""
    adopt_srun_ranks(environment)
    host = host_name(environment)
    if int(environment.get("WORLD_SIZE", "1")) == 1:
        return Place(ranks=Ranks(), host=host)
    ranks = Ranks(
        rank=int(environment["RANK"]),
        world_size=int(environment["WORLD_SIZE"]),
        local_rank=int(environment["LOCAL_RANK"]),
    )
    return Place(
        ranks=ranks,
        host=host,
        num_local_ranks=_num_local_ranks(environment),
        address=environment["MASTER_ADDR"],
        port=int(environment["MASTER_PORT"]),
        owns_store=environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
    )


def _num_local_ranks(environment: Mapping[str, str]) -> int:
    """Return the ranks on this host, from torchrun or from srun's list for all nodes, such as `8(x2),4`."""
    if "LOCAL_WORLD_SIZE" in environment:
        return int(environment["LOCAL_WORLD_SIZE"])
    tasks: list[int] = []
    for number, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", environment.get("SLURM_STEP_TASKS_PER_NODE", "1")):
        tasks += [int(number)] * int(times or 1)
    node = int(environment.get("SLURM_NODEID", "0"))
    return tasks[node] if node < len(tasks) else tasks[0]


def ranks_to_start(runtime: RuntimeConfig, environment: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the variables of the ranks of this machine, the first for this process; empty if they are started already.

    As a training would: with one task for each machine (or one machine), it starts a process for each device.

    >>> from types import SimpleNamespace
    >>> ranks_to_start(SimpleNamespace(num_devices=1, num_nodes=1), {})
    []
    >>> second = {"NODE_RANK": "1", "MASTER_ADDR": "node0"}
    >>> started = ranks_to_start(SimpleNamespace(num_devices=2, num_nodes=2), second)
    >>> [one["RANK"] for one in started], started[0]["WORLD_SIZE"], started[0]["MASTER_ADDR"]
    (['2', '3'], '4', 'node0')
    """
    if {"RANK", "WORLD_SIZE"} & environment.keys():
        return []
    tasks, nodes = (int(environment.get(f"SLURM_STEP_NUM_{of}", "1")) for of in ("TASKS", "NODES"))
    if tasks > 1 and not (tasks == nodes == runtime.num_nodes and runtime.num_devices > 1):
        return []
    num_nodes, node_rank, address, port = 1, 0, "127.0.0.1", free_port()
    if runtime.num_nodes > 1:
        try:
            node = this_node(runtime.num_nodes, environment)
            num_nodes, node_rank, address, port = runtime.num_nodes, node.rank, node.address, node.port
        except MachineError:
            pass  # this machine alone; `ranks_finding` says so
    world_size = num_nodes * runtime.num_devices
    if world_size == 1:
        return []
    return [
        {
            "RANK": str(node_rank * runtime.num_devices + local),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(runtime.num_devices),
            "WORLD_SIZE": str(world_size),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
        }
        for local in range(runtime.num_devices)
    ]


def free_port() -> int:
    """Return a port on which nothing listens now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Meeting:
    """Connection of a rank to the store through which the ranks report to rank 0.

    Args:
        place: Place of this process.
        limit_s: Seconds to wait for rank 0.

    Raises:
        MachineError: Rank 0 cannot be reached, or the store cannot be served; the message names the address.
    """

    def __init__(self, place: Place, *, limit_s: float) -> None:
        ranks = place.ranks
        try:
            self.store = dist.TCPStore(
                place.address,
                place.port,
                is_master=ranks.is_first and place.owns_store,
                timeout=timedelta(seconds=max(1.0, limit_s)),
                wait_for_workers=False,
            )
        except (RuntimeError, ValueError) as error:
            raise MachineError(
                f"rank {ranks.rank} on {place.host} cannot reach rank 0 at {place.address}:{place.port} "
                f"({str(error).splitlines()[0]}). Check that the nodes reach each other (names, firewall), that "
                "MASTER_ADDR is the first node's, that MASTER_PORT is free there, and that all ranks were started."
            ) from None
        # Under an elastic torchrun the store outlives a restart of the ranks.
        self._prefix = f"doctor/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"

    def tell(self, key: str, value: Any = None) -> None:
        """Say something to the ranks that ask for this key."""
        self.store.set(f"{self._prefix}/{key}", json.dumps(value))

    def hear(self, key: str, *, limit_s: float) -> Any:
        """Return what was told under a key.

        Raises:
            TimeoutError: Nobody told it within the limit, or the store has gone.
        """
        name = f"{self._prefix}/{key}"
        try:
            self.store.wait([name], timedelta(seconds=max(0.05, limit_s)))
            return json.loads(self.store.get(name))
        except RuntimeError:  # DistStoreError, DistNetworkError
            raise TimeoutError(key) from None
