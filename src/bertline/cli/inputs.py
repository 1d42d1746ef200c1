"""What the text and the checkpoint of a user mean for a configuration, before any stage runs."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bertline.config import PipelineConfig
from bertline.corpus.document import SourceDocument, clean, duplicate_key, with_single_spaces
from bertline.corpus.preparation import split_document
from bertline.corpus.reader import CorpusReader, documents_of
from bertline.corpus.registry import CorpusConfig, NoCorpusConfig, named_errors, readers_of, texts_of
from bertline.corpus.selection import MORE_DOCUMENTS
from bertline.corpus.sentences.learned import counts_of_words, learn
from bertline.demo.docstrings import PythonDocsCorpusConfig
from bertline.examples.bounds import suited_lengths
from bertline.foundation.errors import ConfigError, DataError
from bertline.foundation.formats import number_of
from bertline.foundation.progress import silent
from bertline.foundation.validation import validate
from bertline.run.identity import at_hand
from bertline.tokenization.config import ExistingTokenizerConfig, ExtendedTokenizerConfig
from bertline.tokenization.tokenizer import Tokenizer

_MOST_CHARACTERS = 4_000_000  # of the beginning of a text are read for its lengths
_DOCSTRINGS = (64, 64)
_NOT_AT_HAND = (128, 512)
"""Those of the paper, for text on a hub."""


def with_suited_lengths(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return a composed configuration in which `examples.lengths: auto` has become numbers.

    The shortest length of `pretrain.phases` becomes the short one that suits the text, all others the long one; their
    steps and batches stay. The beginning of the text is read for it, so the same text gives the same lengths.
    """
    if mapping.get("examples", {}).get("lengths") != "auto":
        return mapping
    phases = mapping["pretrain"]["phases"]
    shortest = min((phase["max_length"] for phase in phases), default=None)
    longest = mapping["model"].get("max_position_embeddings", 512)
    short, long = (min(length, longest) for length in _of_corpus(json.dumps(mapping["corpus"]), longest))
    suited = [{**phase, "max_length": short if phase["max_length"] == shortest else long} for phase in phases]
    return {
        **mapping,
        "examples": {**mapping["examples"], "lengths": sorted({phase["max_length"] for phase in suited})},
        "pretrain": {**mapping["pretrain"], "phases": suited},
    }


@cache
def _of_corpus(composed: str, longest: int) -> tuple[int, int]:
    kinds: Any = CorpusConfig | NoCorpusConfig
    corpus: Any = validate(kinds, json.loads(composed), where="corpus")
    if corpus.kind == "none":
        raise ConfigError("examples.lengths is auto, but there is no corpus (corpus.kind is none). Set it to [].")
    sentences = getattr(corpus, "sentences", None)
    if not isinstance(corpus, CorpusReader) or sentences is None:
        return _DOCSTRINGS
    if not all(text.is_here for text in texts_of(corpus)):
        return _NOT_AT_HAND
    with silent():  # the stage corpus says what is wrong with the text
        sample: list[SourceDocument] = []
        characters = 0
        for document in documents_of(corpus):
            sample.append(document)
            characters += sum(map(len, document.paragraphs))
            if characters >= _MOST_CHARACTERS:
                break
        texts = [with_single_spaces(paragraph) for document in sample for paragraph in document.paragraphs]
        splitter, headings = sentences.splitter(learn(counts_of_words(texts))), sentences.headings
        split = (split_document(document, splitter=splitter, headings=headings)[0] for document in sample)
    return suited_lengths([document.sentences for document in split if document is not None], longest=longest)


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
