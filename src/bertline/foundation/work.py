"""What does a stage's work is given."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertline.foundation.engine import Engine


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """The work of one stage; `Stage.build` does it, or resumes it, and returns its figures."""

    config: Any
    """The root configuration that the run folder was opened with; a stage reads its sections."""
    inputs: Mapping[str, Path]
    """Input folders by artifact name, such as `examples`."""
    folder: Path
    """Run folder, `runs/STAGE/FINGERPRINT`: checkpoints, metrics, and of long work `result/`."""
    output: Path
    """Folder of the result."""
    commit: str
    """Commit of the code."""
    engine: "Engine"
    """Where the work on shards is done."""
    task_name: str | None = None
    """Name of the task in `config.tasks`, for a stage of one task."""

    @property
    def shards(self) -> Path:
        """Folder of what `engine` makes of shards, from which a killed run resumes; removed when
        the stage is done."""
        return self.folder / "shards"
