"""Readers of a corpus, read as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from bertline.corpus.document import Dropped, SourceDocument
from bertline.corpus.readers.table import HubReader, TableReader
from bertline.corpus.readers.text import TextReader
from bertline.corpus.readers.wikiextractor import WikiExtractorReader
from bertline.corpus.readers.xml import XmlReader
from bertline.corpus.registry import CORPORA

TextCorpusConfig = CORPORA[TextReader]
WikiExtractorCorpusConfig = CORPORA[WikiExtractorReader]
XmlCorpusConfig = CORPORA[XmlReader]
TableCorpusConfig = CORPORA[TableReader]
HubCorpusConfig = CORPORA[HubReader]


def read(
    reader: Any, dropped: Counter[str] | list[Dropped] | None = None, *, shard_bytes: int = 1 << 40
) -> Iterator[SourceDocument]:
    """Yield the documents of all shards, and count or list what is left out."""
    shards, left_out = reader.plan(shard_bytes)
    for item in (*left_out, *(item for shard in shards for item in reader.read_shard(shard))):
        if isinstance(item, SourceDocument):
            yield item
        elif isinstance(dropped, Counter):
            dropped[item.reason] += item.count
        elif dropped is not None:
            dropped.append(item)
