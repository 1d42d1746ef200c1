"""The checkpoint that pretraining starts from: its sizes, and whether it fits, before any stage runs.

Only its config.json, the headers of its weights and its vocabulary are read. What reads them needs torch, so it is
imported where a checkpoint is named.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

from bertline.config import PipelineConfig
from bertline.foundation.errors import ConfigError, DataError
from bertline.tokenization.config import ExistingTokenizerConfig, ExtendedTokenizerConfig
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import read_vocabulary, resolve_folder


def size_of_checkpoint(start_from: str | None, revision: str | None, key: str) -> Any:
    """Return the value of a key of the model section, as the checkpoint's config.json gives it.

    Raises:
        ConfigError: No checkpoint is named, or it is neither a folder nor a name known to the hub.
        ArtifactError: It is no BERT checkpoint.
    """
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
    from bertline.modeling.huggingface import read_config

    return dataclasses.asdict(read_config(resolve_folder(start_from, revision))[0])


def check_start(config: PipelineConfig) -> None:
    """Check that the local checkpoint of `pretrain.start_from` is whole and fits model and vocabulary.

    A hub name is not checked: it may not be on this machine yet.

    Raises:
        ConfigError: It does not fit; the message has each difference and what to do. Or an encoder is named twice.
        ArtifactError: The folder is not a whole BERT checkpoint.
    """
    start = config.pretrain.start_from
    for own in {task.start_from for task in config.tasks.values()} if config.sweep.encoders else ():
        from bertline.sweep.job import refuse_same_encoders

        named = filter(None, (own, *config.sweep.encoders))
        refuse_same_encoders("sweep.encoders", ((name, Path(name).expanduser()) for name in named))
    if start is None or not Path(start).expanduser().is_dir():
        return
    folder = Path(start).expanduser()
    from bertline.modeling.huggingface import require_whole_checkpoint
    from bertline.pretraining.start import refuse_misfits, shape_differences, vocabulary_differences

    require_whole_checkpoint(folder)
    if not config.pretrains:
        return
    problems = shape_differences(config.model, folder)
    tokenizer = config.tokenizer
    if isinstance(tokenizer, ExistingTokenizerConfig | ExtendedTokenizerConfig) and tokenizer.path is not None:
        vocabulary = Path(tokenizer.path).expanduser()
        if vocabulary.exists():
            is_folder = vocabulary.is_dir()
            tokens = Tokenizer.load(vocabulary).vocab if is_folder else read_vocabulary(vocabulary).tokens
            differences = vocabulary_differences(tokens, folder)
            problems += [f"tokenizer.path is {tokenizer.path}: {difference}" for difference in differences]
    refuse_misfits(folder, problems)
    marked = [name for name, task in config.tasks.items() if getattr(task, "shared_tokens", "plain") == "marked"]
    marked = [name for name in marked if config.tasks[name].start_from is None]
    if marked and not Tokenizer.load(folder).is_wordpiece:
        raise ConfigError(
            f"tasks.{marked[0]}.shared_tokens is marked, which needs a WordPiece tokenizer, and that of "
            f"pretrain.start_from, {folder}, is {Tokenizer.load(folder).description}. Set it to plain."
        )
