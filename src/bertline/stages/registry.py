"""The stages in the order in which DVC runs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bertline.foundation.errors import ConfigError
from bertline.stages.base import Stage
from bertline.stages.corpus import Corpus
from bertline.stages.evaluate import Evaluate
from bertline.stages.examples import Examples
from bertline.stages.export import Export
from bertline.stages.pretrain import Pretrain
from bertline.stages.sweep import Sweep
from bertline.stages.task_data import TaskData
from bertline.stages.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertline.config import PipelineConfig

STAGES: tuple[Stage, ...] = (
    *(Corpus(), Tokenizer(), Examples(), Pretrain()),
    *(TaskData(), Sweep(), Evaluate(), Export()),
)


def stages_of(config: PipelineConfig) -> Iterator[tuple[Stage, str | None]]:
    """Yield each stage of a configured pipeline, with the task where it is run once for each task."""
    yield from ((stage, task) for stage in STAGES for task in (config.tasks if stage.per_task else (None,)))


def stage_named(name: str) -> Stage:
    """Return the stage with a name; ConfigError if there is none."""
    known = {stage.name: stage for stage in STAGES}
    if name not in known:
        raise ConfigError(f"there is no stage {name!r}; known: {', '.join(known)}")
    return known[name]
