"""What people are told of the checkpoint that a pipeline starts from."""

from __future__ import annotations

from pathlib import Path

from bertline.pretraining.config import PretrainConfig


def checkpoint_title(config: PretrainConfig) -> str:
    """The hub name with its revision, or that it is a local folder, with no more of its path than the name.

    Where somebody's folder lies is nobody else's business, and its name is none on the hub.
    """
    start = str(config.start_from)
    if Path(start).expanduser().exists() or start.startswith((".", "/", "~", "data/")):
        return f"the local checkpoint {Path(start).expanduser().resolve().name}"
    return start if config.start_from_revision is None else f"{start}@{config.start_from_revision}"
