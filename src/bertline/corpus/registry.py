"""The corpus readers: a new one is a file of `corpus/readers` and a line here."""

from __future__ import annotations

from bertline.corpus.readers.hub import HubCorpusConfig
from bertline.corpus.readers.python_docs import PythonDocsCorpusConfig
from bertline.corpus.readers.table import TableCorpusConfig
from bertline.corpus.readers.text import TextCorpusConfig
from bertline.corpus.readers.wikiextractor import WikiExtractorCorpusConfig

CorpusConfig = (
    PythonDocsCorpusConfig | TextCorpusConfig | WikiExtractorCorpusConfig | TableCorpusConfig | HubCorpusConfig
)
