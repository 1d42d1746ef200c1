"""Work over shards: a pure function of each, done once, in processes of this machine or by Ray on
many machines.

    counts = engine.map(partial(clean_shard, config), shards, work / "clean")

Each shard gets a folder below `out`, in which the task writes its files. The folder has a manifest
when it is complete, so that a killed run resumes with the missing shards. The engine decides where
the work is done, never what comes out.
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from bertline.foundation.errors import MachineError
from bertline.foundation.files import folder_written_atomically, read_json, sha256_of_file, write_json
from bertline.foundation.parallel import ordered_map
from bertline.foundation.progress import progress

Shard = TypeVar("Shard")
Counts = dict[str, Any]
"""What a task returns: plain data of JSON, small enough to be held for all shards at once."""
Task = Callable[[Shard, Path], Counts]
"""A picklable pure function: it reads a shard and writes files into a folder of its own, which
exists and is empty."""

_MANIFEST = "shard.json"


def shard_folder(out: Path, index: int) -> Path:
    """Return the folder of a shard's files."""
    return out / f"{index:05d}"


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Processes of this machine."""

    num_workers: int
    """Number of processes; with 0 or 1 the work is done in this one."""

    def map(self, task: Task[Shard], shards: Iterable[Shard], out: Path, *, description: str = "") -> list[Counts]:
        """Apply a task to each shard whose folder is not whole yet.

        Args:
            shards: Picklable descriptions of the work, whose `repr` tells them apart. They depend
                on the input alone, and may be read one after the other while the work is done.
            out: Folder of the folders `00000`, `00001`, ... in the order of the shards; other
                folders in it are removed. It must be one for each task, configuration and input.

        Returns:
            The counts of each shard, in order.

        Raises:
            MachineError: A worker was killed, a folder cannot be written, or there is no cluster.
        """
        work = partial(_whole_or_done, task, out)
        total = len(shards) if isinstance(shards, Sized) else None
        num_workers = self.num_workers if total is None else min(self.num_workers, total)
        results = ordered_map(work, _numbered(shards, out), num_workers=num_workers)
        return list(progress(results, description=description, total=total))


@dataclass(frozen=True, slots=True)
class RayEngine:
    """Ray's scheduler, on the machines of a cluster that share the folders of the work.

    The cluster is started by hand, in an allocation of Slurm (`ray symmetric-run`) or on
    Kubernetes, and is found by `RAY_ADDRESS` or on this machine. Ray repeats the shards of a
    machine that is lost.
    """

    num_cpus: float = 1.0
    """Cores for a shard."""

    def map(self, task: Task[Shard], shards: Iterable[Shard], out: Path, *, description: str = "") -> list[Counts]:
        ray = _connected()
        # Each task is retried for as long as machines are lost; an error of the task itself is
        # raised at once.
        remote = ray.remote(num_cpus=self.num_cpus, max_retries=-1)(_whole_or_done)
        where = out.absolute()
        sent = ray.put(task)
        waiting = [remote.remote(sent, where, item) for item in _numbered(shards, where)]
        try:
            return list(progress(map(ray.get, waiting), description=description, total=len(waiting)))
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if cause is not None and not isinstance(cause, ray.exceptions.RayError):
                raise cause from error  # what the task raised
            raise MachineError(f"Ray could not do the work ({error}). The same command resumes it.") from error


Engine = LocalEngine | RayEngine


def engine_named(name: Literal["local", "ray"], num_workers: int) -> Engine:
    """Return the engine of `runtime.engine`."""
    return LocalEngine(num_workers) if name == "local" else RayEngine()


def _connected() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MachineError(
            'runtime.engine is ray, which is not installed. Install it (pip install "bertline[ray]"), or use local.'
        ) from error
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS", "auto")
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError) as error:
            raise MachineError(
                f"runtime.engine is ray, and no Ray cluster answers at {address}. Start one "
                "(ray start --head), name it in RAY_ADDRESS, or use runtime.engine=local."
            ) from error
    return ray


def _numbered(shards: Iterable[Shard], out: Path) -> Iterator[tuple[int, Shard]]:
    """Yield the shards with their numbers, and at the end remove what is no folder of one of them."""
    out.mkdir(parents=True, exist_ok=True)
    left_over = {path.name for path in out.iterdir()}  # of a run that was killed: one run at a time has the folder
    for index, shard in enumerate(shards):
        left_over.discard(shard_folder(out, index).name)
        yield index, shard
    for name in left_over:
        shutil.rmtree(out / name, ignore_errors=True)


def _whole_or_done(task: Task[Shard], out: Path, numbered: tuple[int, Shard]) -> Counts:
    """Return the counts of a shard: of its manifest if its folder is whole, else after doing the
    work."""
    index, shard = numbered
    folder = shard_folder(out, index)
    identity = hashlib.sha256(repr(shard).encode()).hexdigest()
    counts = _counts_of(folder, identity)
    if counts is None:
        with folder_written_atomically(folder) as new:
            made = task(shard, new)
            write_json(new / _MANIFEST, {"shard": identity, "files": _digests(new), "counts": made})
        counts = dict(read_json(folder / _MANIFEST)["counts"])
    return counts


def _counts_of(folder: Path, identity: str) -> Counts | None:
    """Return the counts of a shard's manifest; None if it is missing, torn, or of other files or
    another shard: a power failure keeps what is renamed, not what is written."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        is_whole = manifest["shard"] == identity and manifest["files"] == _digests(folder)
        return dict(manifest["counts"]) if is_whole else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != _MANIFEST)
    return {path.relative_to(folder).as_posix(): sha256_of_file(path) for path in files}
