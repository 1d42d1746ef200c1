"""What a stage is. `stages/NAME.py` holds one; the command line, DVC, Slurm and ranks run it by its name.

A file of a stage imports little at the top: DVC's first stages read all of them, and torch takes seconds to load.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bertline.foundation.formats import count, markdown_table
from bertline.foundation.work import Work
from bertline.tracking.tracked_runs import Attachment, ShownTable, TrackedRuns

if TYPE_CHECKING:
    from bertline.config import PipelineConfig
    from bertline.pretraining.objectives.base import Objective

ARTIFACTS = Path("artifacts")
METRICS = ARTIFACTS / "metrics"
HEADLINE = ARTIFACTS / "headline"
ENCODERS = ARTIFACTS / "encoders"
"""Folder with the encoder that each task starts from: the link of tasks to `artifacts/pretrain`."""

PYTHON_DOCS = "python_docs.packages"
"""Stands among packages for those whose documentation is the default data."""
TRAINING_PACKAGES = ("torch", "pytorch-lightning", "numpy", "tokenizers", "transformers")
_OTHER_FIGURES = 30
"""Most figures of a stage that its note lists; `figures.json` among the artifacts has all."""


class Stage(ABC):
    """One stage of the pipeline. In paths and sections, `{task}` stands for the task's name.

    A stage's result depends on its `sections`, on its inputs and the user's data, on the versions of its packages, and
    on the code of `build` with all that it imports; not on what else stands in its file.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """What the stage makes, as the note of its run in MLflow says it."""
    sections: ClassVar[tuple[str, ...]]
    """Keys of the configuration that the stage's result depends on."""
    data: ClassVar[tuple[str, ...]] = ()
    """Keys that name data of the user which the stage reads, or sections with such keys (`foundation.checked.UserPath`
    marks them)."""
    inputs: ClassVar[tuple[str, ...]]
    """Artifacts that it reads."""
    output: ClassVar[str]
    page: ClassVar[str | None] = None
    """A page for people about the output, which DVC keeps and restores with it. No stage depends on it."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Distributions that the stage computes or writes with. Python's minor version is always added."""
    is_long: ClassVar[bool] = False
    """Whether `build` can be stopped, resumed, and run as a job of Slurm."""
    on_several_devices: ClassVar[bool] = False
    """Whether `build` may run on `runtime.num_devices` devices of each of `runtime.num_nodes` machines, as one process
    per device."""
    is_of_pretraining: ClassVar[bool] = False
    """Whether only pretraining needs the stage."""
    attachments: ClassVar[tuple[Attachment, ...]] = ()
    """Files of its run folder that its run in MLflow shows."""
    tables: ClassVar[tuple[ShownTable, ...]] = ()

    @property
    def per_task(self) -> bool:
        """Whether the stage is run once for each task."""
        return "{task}" in self.output

    def full_name(self, task: str | None) -> str:
        """Return `sweep@docs_library` for a stage of one task, else the stage's name."""
        return f"{self.name}@{task}" if self.per_task else self.name

    def inputs_of(self, task: str | None) -> list[str]:
        """Return the inputs of a task."""
        return [path.format(task=task) for path in self.inputs]

    def output_of(self, task: str | None) -> Path:
        """Return the place of the result under DVC."""
        return Path(self.output.format(task=task))

    def more_packages(self, config: Mapping[str, Any], task: str | None) -> Iterator[str]:
        """Yield distributions whose version matters under this configuration, besides `packages`."""
        yield from ()

    @abstractmethod
    def build(self, work: Work) -> dict[str, float]:
        """Write the result to `work.output`, or resume that; return the figures of the stage."""

    def join(self, work: Work, **options: Any) -> bool:
        """Take a share of the work that another machine leads; return whether it is done."""
        raise NotImplementedError

    def show(self, work: Work, runs: TrackedRuns, metrics: Mapping[str, float]) -> None:  # noqa: B027
        """Show people what `build` has written: in MLflow and on the terminal. No stage reads it."""

    def headline(self, metrics: Mapping[str, float], objective: Objective) -> dict[str, float]:
        """Return the figures that a person compares first, by the names that
        `run.presentation.write_headline` tells; those that the stage does not have are left out."""
        return {}

    def note(
        self, config: PipelineConfig, name: str, metrics: Mapping[str, float], output: Path
    ) -> tuple[str, list[str]]:
        """Return name and note of a finished stage's run; `name` has its task, such as `sweep@docs_library`."""
        first = sorted(metrics.items(), key=lambda item: item[0] not in charted(metrics))[:_OTHER_FIGURES]
        return name, [markdown_table(["figure", "value"], [(f"`{key}`", short_number(value)) for key, value in first])]


def picked(metrics: Mapping[str, float], **keys: str) -> dict[str, float]:
    """Return the figures of these keys, by other names; those that are not there are left out."""
    return {name: metrics[key] for name, key in keys.items() if key in metrics}


def matching(metrics: Mapping[str, float], pattern: str) -> list[float]:
    """Return the figures whose keys match a pattern."""
    return [value for key, value in metrics.items() if re.fullmatch(pattern, key)]


def charted(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the scores, losses and rates among a stage's figures: counts and constants make no chart."""
    return {key: value for key, value in metrics.items() if "/" in key and isinstance(value, float)}


def short_number(value: float) -> str:
    """Format a figure with four digits, and a large one or a count as such."""
    return count(value) if isinstance(value, int) or abs(value) >= 1000 else f"{value:.4g}"
