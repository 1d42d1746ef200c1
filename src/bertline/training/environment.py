"""What a training process reads from its environment: settings for speed, and its place among several machines."""

import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from bertline.foundation.errors import MachineError

_GIB = 1 << 30
# On the CPU, threads wait for one another about sixty times per step. Next to other busy processes, spinning while they
# wait makes a step at least twice as long; sleeping at once costs a fifth on an idle machine. So they spin briefly.
_SPIN = {"GOMP_SPINCOUNT": "1000"}
# The C library returns large blocks to the system when they are freed, and the next step takes a page fault for every
# 4 KiB, a fifth of its time. So memory is kept, in huge pages where the system provides them on request.
_MEMORY = {
    "GLIBC_TUNABLES": f"glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold={_GIB}:"
    f"glibc.malloc.trim_threshold={64 * _GIB}"
}
_DEFAULT_PORT = 29500  # torchrun's
# Only srun sets this variable; a batch script or a shell in an allocation is one process, whatever the job's tasks.
_STEP_TASKS = "SLURM_STEP_NUM_TASKS"


def environment_for_training(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with missing settings for speed added (measured: notebooks/LOG.md); set ones are kept.

    >>> sorted(environment_for_training({"PATH": "/bin"}))
    ['GLIBC_TUNABLES', 'GOMP_SPINCOUNT', 'PATH']
    """
    spin = {} if "OMP_WAIT_POLICY" in environment else _SPIN
    memory = {} if any(name.startswith("MALLOC_") for name in environment) else _MEMORY
    return {**spin, **memory, **environment}


def use_training_environment() -> None:
    """Start this program again with the settings above, if some are missing: a process reads them only as it starts.

    It remains the same process (the same id), so whoever started it can still send it signals. Call it first.
    """
    environment = environment_for_training(os.environ)
    if environment != dict(os.environ):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """Place of this machine among those that train together, and the address where they meet."""

    rank: int = 0
    num_nodes: int = 1
    address: str = "127.0.0.1"
    """Address of the first node."""
    port: int = _DEFAULT_PORT

    @property
    def is_first(self) -> bool:
        """Whether this node records the run."""
        return self.rank == 0


def this_node(num_nodes: int, environment: Mapping[str, str]) -> Node:
    """Read the place of this machine; the same command is started once on each machine.

    The place is in NODE_RANK, MASTER_ADDR and MASTER_PORT. torchrun's variables of these names after `PET_` take
    precedence, PET_RDZV_ENDPOINT fills what they leave open, and the Slurm step what is still missing.

    Raises:
        MachineError: The place is not set, or does not fit the number of nodes.

    >>> this_node(2, {"NODE_RANK": "1", "MASTER_ADDR": "node0"})
    Node(rank=1, num_nodes=2, address='node0', port=29500)
    """
    if num_nodes == 1:
        return Node()
    host, _, port = environment.get("PET_RDZV_ENDPOINT", "").rpartition(":")
    rank = _first_of(environment, "PET_NODE_RANK", "NODE_RANK") or _rank_in_step(num_nodes, environment)
    address = _first_of(environment, "PET_MASTER_ADDR", "MASTER_ADDR") or host or _first_host(environment)
    port = _first_of(environment, "PET_MASTER_PORT", "MASTER_PORT") or port or _port_of_job(environment)
    if not (rank.isdecimal() and int(rank) < num_nodes and port.isdecimal() and address):
        raise MachineError(
            f"runtime.num_nodes is {num_nodes}, but NODE_RANK is {rank or 'not set'} (0 to {num_nodes - 1}), "
            f"MASTER_ADDR {address or 'not set'} and MASTER_PORT {port}. Start the same command on every node with its "
            "number and the address of the first; on the second, for example: NODE_RANK=1 MASTER_ADDR=node0 "
            f"MASTER_PORT={_DEFAULT_PORT} python pipelines/pretrain.py runtime.num_nodes={num_nodes} ... In a Slurm "
            f"job srun says both: srun --nodes={num_nodes} --ntasks-per-node=1 python pipelines/pretrain.py "
            f"runtime.num_nodes={num_nodes} ... From a login node of a Slurm cluster: dvc repro with runtime=slurm"
        )
    return Node(rank=int(rank), num_nodes=num_nodes, address=address, port=int(port))


def adopt_srun_ranks(environment: MutableMapping[str, str]) -> None:
    """Set the variables that torchrun would have set, if srun started this process together with others.

    Nothing changes if RANK or WORLD_SIZE is set, or the process is the only one of its step or in none; MASTER_ADDR and
    MASTER_PORT are kept if set.

    >>> environment = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3", "SLURM_LOCALID": "1",
    ...                "SLURM_STEP_NODELIST": "gpu[07-08]", "SLURM_JOB_ID": "123456"}
    >>> adopt_srun_ranks(environment)
    >>> [environment[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")]
    ['3', '4', '1', 'gpu07', '23456']
    """
    if {"RANK", "WORLD_SIZE"} & environment.keys() or int(environment.get(_STEP_TASKS, "1")) == 1:
        return
    environment["RANK"] = environment["SLURM_PROCID"]
    environment["WORLD_SIZE"] = environment[_STEP_TASKS]
    environment["LOCAL_RANK"] = environment["SLURM_LOCALID"]
    environment.setdefault("MASTER_ADDR", _first_host(environment) or "127.0.0.1")
    environment.setdefault("MASTER_PORT", _port_of_job(environment))


def outside_step(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a process that srun did not start, which is not a task of the step."""
    return {name: value for name, value in environment.items() if name != _STEP_TASKS}


def _rank_in_step(num_nodes: int, environment: Mapping[str, str]) -> str:
    """Return the node rank from srun; empty outside a step, since a batch script runs on the first node only."""
    if _STEP_TASKS not in environment:
        return ""
    nodes, tasks = environment.get("SLURM_STEP_NUM_NODES", "1"), environment[_STEP_TASKS]
    if (nodes, tasks) != (str(num_nodes), str(num_nodes)):
        raise MachineError(
            f"runtime.num_nodes is {num_nodes}, but srun started {tasks} tasks on {nodes} nodes. Start one task on "
            f"each node; it starts a process for each device: srun --nodes={num_nodes} --ntasks-per-node=1 ..."
        )
    return environment["SLURM_NODEID"]


def _first_host(environment: Mapping[str, str]) -> str:
    """Return the first host of a list like `gpu[07-08,11],cpu3`. Containers often lack `scontrol` to expand it."""
    hosts = _first_of(environment, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")
    first = re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", hosts).partition(",")[0]
    # The node where srun was called is the last choice: it may be a login node, where no process listens.
    return first or environment.get("SLURM_LAUNCH_NODE_IPADDR", "")


def _port_of_job(environment: Mapping[str, str]) -> str:
    """Return a port below those that systems assign to clients (32768 and more), the same on all nodes of a job."""
    job = environment.get("SLURM_JOB_ID")
    return str(_DEFAULT_PORT if job is None else 20_000 + int(job) % 10_000)


def _first_of(environment: Mapping[str, str], *names: str) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")
