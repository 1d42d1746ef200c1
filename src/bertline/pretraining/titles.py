"""Display name of the checkpoint that a pipeline starts from."""

from __future__ import annotations

from pathlib import Path

from bertline.pretraining.config import PretrainConfig


def checkpoint_title(config: PretrainConfig) -> str:
    """Return the hub name with its revision, or for a local checkpoint, a text with the name of its folder.

    The full path is left out because it is private; the text marks the name as local because it is not a hub name.
    """
    start = str(config.start_from)
    if Path(start).expanduser().exists() or start.startswith((".", "/", "~", "data/")):
        return f"the local checkpoint {Path(start).expanduser().resolve().name}"
    return start if config.start_from_revision is None else f"{start}@{config.start_from_revision}"
