"""`examples.lengths: auto`: the lengths of examples and phases, suited to the text before anything runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from bertline.corpus.document import SourceDocument
from bertline.corpus.preparation import split_document
from bertline.corpus.reader import CorpusReader, documents_of
from bertline.corpus.registry import CorpusConfig, NoCorpusConfig
from bertline.corpus.sentences.learned import count, learn
from bertline.examples.bounds import suited_lengths
from bertline.foundation.errors import ConfigError
from bertline.foundation.progress import silent
from bertline.foundation.stretches import with_single_spaces
from bertline.foundation.validation import validate

AUTO = "auto"
_SAMPLE_CHARACTERS = 4_000_000
_DOCSTRINGS = (64, 64)
_NOT_AT_HAND = (128, 512)
"""Those of the paper, for text on a hub."""


@dataclass(frozen=True)
class _Corpus:
    corpus: CorpusConfig | NoCorpusConfig


def with_suited_lengths(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return a composed configuration in which `examples.lengths: auto` has become numbers.

    The shortest length of `pretrain.phases` becomes the short one that suits the text, all others the long one; their
    steps and batches stay. The beginning of the text is read for it, so the same text gives the same lengths.

    Raises:
        ConfigError: The corpus is not configured well, or its path does not exist.
        DataError: The text cannot be read.
    """
    if mapping.get("examples", {}).get("lengths") != AUTO:
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
    corpus: Any = validate(_Corpus, {"corpus": json.loads(composed)}).corpus
    if corpus.kind == "none":
        raise ConfigError("examples.lengths is auto, but there is no corpus (corpus.kind is none). Set it to [].")
    sentences = getattr(corpus, "sentences", None)
    if not isinstance(corpus, CorpusReader) or sentences is None:
        return _DOCSTRINGS
    if corpus.user_path is None:
        return _NOT_AT_HAND
    with silent():  # the stage corpus says what is wrong with the text
        sample = _sample(corpus)
        texts = [with_single_spaces(paragraph) for document in sample for paragraph in document.paragraphs]
        splitter, headings = sentences.splitter(learn(count(texts))), sentences.headings
        split = (split_document(document, splitter=splitter, headings=headings)[0] for document in sample)
    return suited_lengths([document.sentences for document in split if document is not None], longest=longest)


def _sample(corpus: CorpusReader) -> list[SourceDocument]:
    """Return the first documents, up to a few million characters."""
    found: list[SourceDocument] = []
    characters = 0
    for document in documents_of(corpus):
        found.append(document)
        characters += sum(map(len, document.paragraphs))
        if characters >= _SAMPLE_CHARACTERS:
            break
    return found
