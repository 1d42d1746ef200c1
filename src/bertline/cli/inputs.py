"""What the text and the checkpoint of a user mean for a configuration, before any stage runs."""

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

from bertline.config import PipelineConfig
from bertline.foundation.errors import ConfigError, DataError
from bertline.tokenization.config import ExistingTokenizerConfig, ExtendedTokenizerConfig
from bertline.tokenization.tokenizer import Tokenizer


def size_of_checkpoint(start_from: str | None, revision: str | None, key: str) -> Any:
    """Return the value of a key of the model section, as the checkpoint's config.json gives it."""
    if start_from is None:
        raise ConfigError(
            "model=from_checkpoint takes the sizes of pretrain.start_from, which is null. Name the checkpoint: "
            "pretrain.start_from=/path/to/checkpoint"
        )
    try:
        return _sizes(start_from, revision)[key]
    except DataError as error:
        raise ConfigError(f"pretrain.start_from is {start_from}; {error}") from error


@cache
def _sizes(start_from: str, revision: str | None) -> dict[str, Any]:
    from bertline.modeling.checkpoint import Checkpoint

    return dataclasses.asdict(Checkpoint.open(start_from, revision).config)


def check_start(config: PipelineConfig) -> None:
    """Check that the local checkpoint of `pretrain.start_from` is whole and fits model and vocabulary.

    A hub name is not checked: it may not be on this machine yet.
    """
    start = config.pretrain.start_from
    for own in {task.start_from for task in config.tasks.values()} if config.sweep.encoders else ():
        from bertline.sweep.bench import refuse_same_encoders

        refuse_same_encoders("sweep.encoders", map(Path, filter(None, (own, *config.sweep.encoders))))
    if start is None or not Path(start).expanduser().is_dir():
        return
    from bertline.modeling.checkpoint import Checkpoint
    from bertline.modeling.huggingface import require_whole_checkpoint
    from bertline.pretraining.start import misfits, refuse_misfits

    checkpoint = Checkpoint.open(start)
    require_whole_checkpoint(checkpoint)
    if not config.pretrains:
        return
    tokenizer, vocab = config.tokenizer, None
    if isinstance(tokenizer, ExistingTokenizerConfig | ExtendedTokenizerConfig) and tokenizer.path is not None:
        path = Path(tokenizer.path).expanduser()
        if path.exists():
            vocab = Tokenizer.load(path).vocab
    refuse_misfits(checkpoint, misfits(checkpoint, config.model, vocab))
    marked = [name for name, task in config.tasks.items() if getattr(task, "shared_tokens", "plain") == "marked"]
    marked = [name for name in marked if config.tasks[name].start_from is None]
    if marked and not checkpoint.tokenizer.is_wordpiece:
        raise ConfigError(
            f"tasks.{marked[0]}.shared_tokens is marked, which needs a WordPiece tokenizer, and that of "
            f"pretrain.start_from, {checkpoint.folder}, is {checkpoint.tokenizer.description}. Set it to plain."
        )
