"""The stages in the order in which DVC runs them."""

from bertline.foundation.errors import ConfigError
from bertline.stages.base import Stage
from bertline.stages.corpus import Corpus
from bertline.stages.encoders import Encoders
from bertline.stages.evaluate import Evaluate
from bertline.stages.examples import Examples
from bertline.stages.export import Export
from bertline.stages.pretrain import Pretrain
from bertline.stages.sweep import Sweep
from bertline.stages.task_data import TaskData
from bertline.stages.tokenizer import Tokenizer

STAGES: tuple[Stage, ...] = (
    *(Corpus(), Tokenizer(), Examples(), Pretrain()),
    *(TaskData(), Encoders(), Sweep(), Evaluate(), Export()),
)


def stage_named(name: str) -> Stage:
    """Return the stage with a name; ConfigError if there is none."""
    known = {stage.name: stage for stage in STAGES}
    if name not in known:
        raise ConfigError(f"there is no stage {name!r}; known: {', '.join(known)}")
    return known[name]
