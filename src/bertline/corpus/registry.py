"""The corpus readers: a new one is a file of `corpus/readers` and a line here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bertline.corpus.readers.table import HubCorpusConfig, TableCorpusConfig
from bertline.corpus.readers.text import TextCorpusConfig
from bertline.corpus.readers.wikiextractor import WikiExtractorCorpusConfig
from bertline.corpus.readers.xml import XmlCorpusConfig
from bertline.demo.reader import PythonDocsCorpusConfig

CorpusConfig = (
    PythonDocsCorpusConfig
    | TextCorpusConfig
    | WikiExtractorCorpusConfig
    | XmlCorpusConfig
    | TableCorpusConfig
    | HubCorpusConfig
)


@dataclass(frozen=True, kw_only=True, slots=True)
class NoCorpusConfig:
    """No corpus: an existing checkpoint is fine-tuned (`experiment=finetune`)."""

    kind: Literal["none"]
