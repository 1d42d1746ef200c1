"""Checkpoints that survive a kill at any moment: atomic, checksummed, the newest few kept.

Each is two files, `step-00001200.pt` and `step-00001200.pt.sha256`. The content is plain tensors, numbers, strings,
lists and dicts, so that it loads with `weights_only=True`: no code is ever run by loading one.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bertline.foundation.errors import MachineError
from bertline.foundation.files import cannot_write, sha256_of_file, write_atomically
from bertline.foundation.progress import warn

_NAME = re.compile(r"step-(\d{8,})\.pt")


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """One loaded checkpoint."""

    step: int
    path: Path
    state: dict[str, Any]


class CheckpointFolder:
    """The checkpoints of one run.

    Args:
        folder: Made when the first checkpoint is saved.
        keep: How many of the newest stay; the older ones go once a newer one is safely on disk.
    """

    def __init__(self, folder: Path, *, keep: int) -> None:
        self.folder = folder
        self.keep = keep

    def save(self, step: int, state: dict[str, Any]) -> Path:
        """Save a state as the checkpoint of `step`, then drop what is no longer kept.

        Raises:
            MachineError: The disk is full or the folder cannot be written; all earlier checkpoints are untouched.
        """
        path = self.folder / f"step-{step:08d}.pt"
        temporary = path.with_name(f".{path.name}.part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as handle:
                torch.save(state, handle)
                handle.flush()
                os.fsync(handle.fileno())
            # The digest first: a checkpoint under its final name always has one, whenever the kill comes.
            write_atomically(_digest_path(path), sha256_of_file(temporary) + "\n")
            temporary.replace(path)
        except (OSError, RuntimeError) as error:
            temporary.unlink(missing_ok=True)
            # torch's zip writer reports what went wrong while writing as a RuntimeError of its own.
            cause = error.__context__ if isinstance(error, RuntimeError) else error
            if isinstance(cause, OSError):
                raise MachineError(cannot_write(path, cause)) from error
            raise (cause if isinstance(cause, KeyboardInterrupt) else error) from None
        self._drop_old()
        return path

    def load_newest(self) -> Checkpoint | None:
        """Load the newest checkpoint that is whole; a torn or corrupted one is passed over with a warning."""
        for step, path in reversed(self._found()):
            problem = _problem_of(path)
            if problem is None:
                state = torch.load(path, map_location="cpu", weights_only=True)
                return Checkpoint(step=step, path=path, state=state)
            warn(f"{path}: {problem}. The checkpoint before it is used.")
        return None

    def _found(self) -> list[tuple[int, Path]]:
        """Steps and paths, oldest first."""
        names = ((_NAME.fullmatch(path.name), path) for path in self.folder.glob("step-*.pt"))
        return sorted((int(match[1]), path) for match, path in names if match)

    def _drop_old(self) -> None:
        for _, path in self._found()[: -self.keep]:
            path.unlink(missing_ok=True)
            _digest_path(path).unlink(missing_ok=True)


def _digest_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _problem_of(path: Path) -> str | None:
    try:
        expected = _digest_path(path).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return "its .sha256 file is missing"
    return (
        None if sha256_of_file(path) == expected else "its content does not match its SHA-256; it is torn or corrupted"
    )
