"""What the function that does a stage's work is given."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """The long work of one stage. A function `run(work)` does it, resumes it, and returns its headline figures."""

    config: Any
    """The root configuration that the run folder was opened with; a function reads the sections of its stage."""
    inputs: Mapping[str, Path]
    """Input folders by artifact name, such as `examples`."""
    folder: Path
    """Run folder, `runs/STAGE/FINGERPRINT`: checkpoints, metrics, and at the end `result/`."""
    task_name: str | None = None
    """Name of the task in `config.tasks`, for a stage of one task."""
