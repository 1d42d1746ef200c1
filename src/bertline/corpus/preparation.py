"""From the documents of a source to cleaned sentences, and the files in which they lie between the steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Literal, TypeVar

import pyarrow as pa
from pydantic import TypeAdapter

from bertline.corpus.document import Dropped, SourceDocument, Split, clean, duplicate_key, key_of_folded
from bertline.corpus.quality.cleaning import clean_document
from bertline.corpus.quality.contamination import contaminated, read_needles
from bertline.corpus.quality.drops import Drops
from bertline.corpus.quality.duplicates import write_keys
from bertline.corpus.reader import CorpusSettings
from bertline.corpus.sentences.learned import LearnedSplitter, nothing_learned
from bertline.corpus.sentences.splitter import Knowledge, LinesConfig
from bertline.corpus.storage import read_batches, write_batches
from bertline.foundation.engine import Counts
from bertline.foundation.parallel import batches

_BATCH_CHARACTERS = 500_000
_BATCH_DOCUMENTS = 1_000
_TEXT = pa.string()
_SOURCE = pa.schema([("id", _TEXT), ("group", _TEXT), ("paragraphs", pa.list_(pa.large_string())), ("split", _TEXT)])
_PREPARED = pa.schema(
    [("id", _TEXT), ("group", _TEXT), ("split", _TEXT), ("paragraphs", pa.list_(pa.list_(pa.large_string())))]
)
_FILE = "documents.arrow"
KNOWLEDGE = TypeAdapter(Knowledge)
"""What the corpus says of its words, as JSON between the steps."""
Text = TypeVar("Text")


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A cleaned document."""

    id: str
    group: str
    split: Split | None
    paragraphs: tuple[tuple[str, ...], ...]
    """Sentences of each paragraph."""
    keys: tuple[bytes, ...] = ()
    """Keys of the document or of its paragraphs, equal for those that differ only in case and white space."""
    number: int = 0
    """Place among the prepared documents of its shard."""

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(sentence for paragraph in self.paragraphs for sentence in paragraph)

    def left_out(self, reason: str, note: str = "") -> Dropped:
        """Return what is counted when the document is left out."""
        return Dropped(f"documents/{reason}", self.id, " ".join(self.sentences), note=note)

    def without(self, indices: Iterable[int], reason: str) -> tuple[PreparedDocument | None, list[Dropped]]:
        """Return the document without some paragraphs, if there are others, and what is counted."""
        gone = set(indices)
        if not gone:
            return self, []
        dropped = [Dropped(f"paragraphs/{reason}", self.id, " ".join(self.paragraphs[index])) for index in sorted(gone)]
        left = [index for index in range(len(self.paragraphs)) if index not in gone]
        if not left:
            return None, [*dropped, self.left_out(reason)]
        keys = tuple(self.keys[index] for index in left) if len(self.keys) == len(self.paragraphs) else self.keys
        paragraphs = tuple(self.paragraphs[index] for index in left)
        return dataclasses.replace(self, paragraphs=paragraphs, keys=keys), dropped


def write_source(folder: Path, documents: Iterable[SourceDocument]) -> int:
    """Write the documents of a shard as they were read; return the number of batches."""
    return write_batches(folder / _FILE, in_batches(map(_encodable, documents), attrgetter("paragraphs")), _SOURCE)


def in_batches(
    documents: Iterable[Text], texts_of: Callable[[Text], Iterable[str]] = attrgetter("sentences")
) -> Iterator[list[Text]]:
    """Yield documents in lists of about half a million characters."""
    return batches(
        documents,
        size=lambda document: sum(map(len, texts_of(document))),
        most=_BATCH_CHARACTERS,
        most_items=_BATCH_DOCUMENTS,
    )


def read_source(folder: Path, wanted: Iterable[int] | None = None) -> Iterator[SourceDocument]:
    """Read the documents of a shard, or those of some batches."""
    for columns in read_batches(folder / _FILE, wanted):
        for key, group, paragraphs, split in zip(*columns.values(), strict=True):
            yield SourceDocument(key, group, tuple(paragraphs), split)


@dataclass(frozen=True, slots=True)
class Preparation:
    """How documents are prepared, and where that lies which was learned beforehand."""

    config: CorpusSettings
    knowledge: dict[str, Path]
    """Files of what each source says of its words, if sentences are learned."""
    needles: Path | None
    """Folder of `write_needles`."""

    def __call__(self, shard: tuple[str, Path], out: Path) -> Counts:
        """Prepare the documents of a shard, named by its source and folder; the task of a shard."""
        source, folder = shard
        config, drops = self.config, Drops()
        knowledge = nothing_learned()
        if self.knowledge:
            knowledge = KNOWLEDGE.validate_json(self.knowledge[source].read_bytes())
        cleaning, documents = config.cleaning, read_source(folder)
        if cleaning.fix_mojibake or cleaning.join_hyphens or cleaning.markup != "keep":
            documents = drops.run(partial(clean_document, config=cleaning), documents)
        split = partial(split_document, splitter=config.sentences.splitter(knowledge), unit=config.deduplicate)
        prepared = drops.run(split, documents)
        if self.needles is not None:
            needles = read_needles(self.needles)
            prepared = drops.run(
                lambda each: each.without(contaminated(each.paragraphs, needles), "contaminated"), prepared
            )
        keys: list[tuple[bytes, ...]] = []

        def with_keys_kept() -> Iterator[PreparedDocument]:
            for document in prepared:
                keys.append(document.keys)
                yield document

        write_batches(out / _FILE, in_batches(with_keys_kept()), _PREPARED)
        write_keys(out, keys)
        return {"drops": drops.content()}


def read_prepared(folder: Path) -> Iterator[PreparedDocument]:
    """Read the prepared documents of a shard, without their keys."""
    rows = chain.from_iterable(zip(*columns.values(), strict=True) for columns in read_batches(folder / _FILE))
    for number, (key, group, split, paragraphs) in enumerate(rows):
        yield PreparedDocument(key, group, split, tuple(map(tuple, paragraphs)), number=number)


def split_document(
    document: SourceDocument,
    *,
    splitter: LearnedSplitter | LinesConfig,
    unit: Literal["document", "paragraph", "none"] = "none",
) -> tuple[PreparedDocument | None, list[Dropped]]:
    """Clean a document and split it into sentences; the keys are those of the `unit`."""
    texts = [text for text in map(clean, document.paragraphs) if text]
    key = key_of_folded(" ".join(map(str.casefold, texts)))  # one by one: most are ASCII, which is folded faster
    if splitter.keeps_lines:
        lines = (map(clean, paragraph.splitlines()) for paragraph in document.paragraphs)
        texts = [text for text in ("\n".join(filter(None, part)) for part in lines) if text]
    keys = tuple(map(duplicate_key, texts)) if unit == "paragraph" else (key,) * (unit == "document")
    # Without a group from the source, the key is the group, so that equal texts are in the same
    # split.
    name, group = clean(document.id), clean(document.group) or key.hex()
    if not texts:
        return None, [Dropped("documents/empty", name)]
    paragraphs = tuple(tuple(splitter.split(text)) for text in texts)
    return PreparedDocument(name, group, document.split, paragraphs, keys), []


def _encodable(document: SourceDocument) -> SourceDocument:
    """Take out lone surrogates, which JSON can have, Arrow does not store, and cleaning takes out."""
    texts = (document.id, document.group, *document.paragraphs)
    if "".join(texts).isascii():
        return document
    key, group, *paragraphs = (text.encode(errors="ignore").decode() for text in texts)
    return dataclasses.replace(document, id=key, group=group, paragraphs=tuple(paragraphs))
