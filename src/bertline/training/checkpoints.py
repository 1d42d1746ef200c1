"""Checkpoints that survive a kill at any moment: atomic and checksummed; the newest few are kept.

Each is two files, `step-00001200.pt` and `step-00001200.pt.sha256`, of plain data that loads with `weights_only=True`:
loading never runs code. While a thread writes it, training continues: a step waits for a copy in host memory only.
"""

import os
import pickle
import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertline.foundation.errors import ArtifactError, MachineError
from bertline.foundation.files import cannot_write, sha256_of_file, write_atomically
from bertline.foundation.progress import warn

_NAME = re.compile(r"step-(\d{8,})\.pt")
# All files that saving can leave: both files of a checkpoint, and half-written ones after a kill.
_OURS = re.compile(r"\.?step-\d{8,}\.pt(\.part|\.sha256(\.\w{8})?)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedStep:
    """What was saved of a training after a step."""

    step: int
    state: dict[str, Any]


@dataclass(frozen=True)
class CheckpointFolder:
    """The checkpoints of one run."""

    folder: Path
    """Folder of the checkpoints; created when the first one is saved."""
    keep: int
    """Number of newest checkpoints to keep; older ones are deleted once a newer one is safely on disk."""

    @property
    def steps(self) -> list[int]:
        """Steps that have a checkpoint, oldest first, whether it is intact or not."""
        names = (_NAME.fullmatch(path.name) for path in self.folder.glob("step-*.pt"))
        return sorted(int(match[1]) for match in names if match)

    def save(self, step: int, state: dict[str, Any]) -> Path:
        """Save a state as the checkpoint of `step`, then delete checkpoints that are no longer kept.

        Checkpoints of later steps are damaged, and are deleted.

        Raises:
            MachineError: The disk is full or the folder cannot be written; all earlier checkpoints are untouched.
        """
        path = self._path(step)
        temporary = path.with_name(f".{path.name}.part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as handle:
                torch.save(state, handle)
                handle.flush()
                os.fsync(handle.fileno())
            # Write the digest first, so that a checkpoint under its final name has one even after a kill.
            write_atomically(_digest_path(path), sha256_of_file(temporary) + "\n")
            temporary.replace(path)
            with suppress(OSError):  # makes the rename survive a power cut, where the file system supports it
                descriptor = os.open(self.folder, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
        except (OSError, RuntimeError) as error:
            # torch's zip writer reports write errors as its own RuntimeError.
            cause = error.__context__ if isinstance(error, RuntimeError) else error
            if not isinstance(cause, OSError):
                raise
            raise MachineError(cannot_write(path, cause)) from error
        finally:
            # A half-written checkpoint would keep a full disk full.
            temporary.unlink(missing_ok=True)
        self._drop_all_but(step)
        return path

    def load_newest(self) -> SavedStep | None:
        """Load the newest intact checkpoint, None if there is none; damaged ones give a warning.

        Raises:
            ArtifactError: All existing checkpoints are damaged (silently training from scratch would discard the run's
                records), or one holds more than plain data.
        """
        for step in reversed(self.steps):
            if (checkpoint := self.load(step)) is not None:
                return checkpoint
        if self.steps:
            raise ArtifactError(
                f"{self.folder} has {len(self.steps)} checkpoints and none of them is whole; the warnings above say "
                "why. Put a whole one back from a copy, or delete that folder to start from scratch."
            )
        return None

    def load(self, step: int) -> SavedStep | None:
        """Load the checkpoint of a step; None if it does not exist or, with a warning, if it is damaged."""
        path = self._path(step)
        if not path.exists():
            return None
        if (problem := _problem_of(path)) is not None:
            warn(f"{path}: {problem}. It is skipped; an earlier checkpoint is used, where there is one.")
            return None
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise ArtifactError(
                f"{path} holds more than tensors and plain data, which could run code while it is loaded; it is "
                "refused. bertline did not write it so: delete it, and its .sha256, to resume from the one before. "
                f"({error})"
            ) from error
        return SavedStep(step=step, state=state)

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}.pt"

    def _drop_all_but(self, step: int) -> None:
        kept = [self._path(each) for each in self.steps if each <= step][-self.keep :]
        names = {name for path in kept for name in (path.name, _digest_path(path).name)}
        # In sorted order a checkpoint is deleted before its digest, so that it never exists without one.
        for path in sorted(self.folder.iterdir()):
            if _OURS.fullmatch(path.name) and path.name not in names:
                path.unlink(missing_ok=True)


def _digest_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _problem_of(path: Path) -> str | None:
    try:
        expected = _digest_path(path).read_bytes().strip()
        found = sha256_of_file(path).encode()
    except FileNotFoundError:
        return "its .sha256 file is missing"
    except OSError as error:
        return f"it cannot be read ({error.strerror or error})"
    return None if found == expected else "its content does not match its SHA-256; it is torn or corrupted"


def on_host(value: Any) -> Any:
    """Return a copy of nested dicts, lists and tuples with every tensor on the host; other values are shared."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: on_host(each) for key, each in value.items()}
    return type(value)(map(on_host, value)) if isinstance(value, (list, tuple)) else value


class BackgroundWriter:
    """Runs one function at a time in a thread; its error is raised at the next call of `check`, `wait` or `start`."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="saving")
        self._written: Future[object] | None = None

    def start(self, write: Callable[[], object]) -> None:
        """Run `write` in a thread, which the end of the process waits for. Waits for the one before first."""
        self.wait()
        self._written = self._thread.submit(write)

    def check(self) -> None:
        """Raise the error of the last function, if it failed."""
        if self._written is not None and self._written.done():
            self.wait()

    def wait(self) -> None:
        """Wait until nothing is being written, and raise the error, if it failed."""
        if self._written is not None:
            wait([self._written])
            written, self._written = self._written, None
            written.result()
