"""What the text and the checkpoint of a user mean for a configuration, before any stage runs."""

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bertline.config import PipelineConfig
from bertline.corpus.document import SourceDocument, clean, duplicate_key
from bertline.corpus.reader import CorpusReader, documents_of
from bertline.corpus.registry import NoCorpusConfig, named_errors, readers_of, texts_of
from bertline.corpus.selection import MORE_DOCUMENTS
from bertline.demo.docstrings import PythonDocsCorpusConfig
from bertline.foundation.errors import ConfigError, DataError
from bertline.foundation.formats import number_of
from bertline.foundation.progress import silent
from bertline.run.identity import at_hand
from bertline.tokenization.config import ExistingTokenizerConfig, ExtendedTokenizerConfig
from bertline.tokenization.tokenizer import Tokenizer


def check_enough_text(config: PipelineConfig) -> None:
    """Check that the user's own text has the documents that both splits need.

    A split needs two documents where the second segment of a pair may be a random one of another document, else one.
    Where groups, cleaning, or the removal of near duplicates leave too few, the stages say it. Text on a hub and from
    packages is not checked, nor paths at which nothing is yet.
    """
    corpus = config.corpus
    if isinstance(corpus, NoCorpusConfig | PythonDocsCorpusConfig) or not config.examples.lengths:
        return
    needed = config.examples.min_documents
    if corpus.validation_fraction == 0:
        raise ConfigError(
            f"corpus.validation_fraction is 0: no text would be for validation, of which the examples need at least "
            f"{needed} document{'s' * (needed > 1)}. Set a fraction above 0, such as 0.02; of a small text it "
            "takes the few documents that are needed."
        )
    texts = list(texts_of(corpus))
    if not all(text.is_here and at_hand(text.path) for text in texts):
        return
    different: set[bytes] = set()
    with silent():  # the corpus stage says what it leaves out
        for number, document in enumerate(_documents(readers_of(corpus))):
            text = " ".join(filter(None, map(clean, document.paragraphs)))
            if len(text) >= max(1, corpus.min_document_characters):
                different.add(str(number).encode() if corpus.deduplicate == "none" else duplicate_key(text))
            if len(different) >= 2 * needed:
                return
    places = ", ".join(f"{text.key} is {text.path}" for text in texts)
    why = ", because a random second segment comes from another document" if needed > 1 else ""
    raise ConfigError(
        f"{places}, with {number_of(len(different), 'document')} to train on, without short ones and copies; "
        f"expected at least {needed} for each of train and validation{why}. {MORE_DOCUMENTS}, or "
        f"lower corpus.min_document_characters (now {corpus.min_document_characters})."
    )


def _documents(readers: Mapping[str, CorpusReader]) -> Iterator[SourceDocument]:
    for name, reader in readers.items():
        with named_errors(name):
            yield from documents_of(reader)


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

        named = filter(None, (own, *config.sweep.encoders))
        refuse_same_encoders("sweep.encoders", ((name, Path(name).expanduser()) for name in named))
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
