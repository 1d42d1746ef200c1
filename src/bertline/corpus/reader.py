"""The settings of every corpus and of every source, and the contract of a reader."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from bertline.corpus.document import Dropped, SourceDocument
from bertline.corpus.files import InputShard, OnUndecodable, Part, find_files, naming, refuse_changed, shards_of
from bertline.corpus.sentences.learned import LearnedConfig
from bertline.corpus.sentences.splitter import LinesConfig
from bertline.foundation.bad_rows import BadRows
from bertline.foundation.checked import (
    Checked,
    FractionBelowOne,
    NonNegativeInt,
    PositiveFraction,
    PositiveInt,
    UserPath,
    above,
    below,
)

_SMALL_SHARD_BYTES, _MANY_SHARDS = 4_000_000, 16

SentencesConfig = LearnedConfig | LinesConfig
"""The kinds of sentence splitting: a new one is a file of `corpus/sentences` and a name here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NearDuplicatesConfig(Checked):
    """Removal of documents that are nearly equal to an earlier one."""

    threshold: PositiveFraction | None
    """Jaccard similarity of word n-grams from which the later document is dropped, in (0, 1]; null keeps all."""
    ngram: PositiveInt
    """Words of an n-gram."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CleaningConfig(Checked):
    """What is changed in text, or found in it, before it is split into sentences."""

    fix_mojibake: bool
    """Whether text that was decoded with a wrong encoding ("schÃ¶n") is decoded again, where ftfy finds it."""
    join_hyphens: bool
    """Whether words that a hyphen divides at the end of a line are joined; their document says which are compounds."""
    markup: Literal["keep", "say", "remove"]
    """Left-over markup (templates, tags, entities, placeholders, empty brackets): not looked for, counted, or removed.
    """


# Without slots: a class cannot have two bases with slots of their own, and those of corpora have a
# reader too.
@dataclass(frozen=True, kw_only=True)
class CorpusSettings(Checked):
    """Settings of every kind of corpus, however its text is read."""

    validation_fraction: FractionBelowOne
    """Fraction of document groups kept for validation, by a hash of the group. python_docs has its own split."""
    split_seed: int
    """Seed of the hash that selects validation groups."""
    deduplicate: Literal["document", "paragraph", "none"]
    """Unit of exact de-duplication, after normalising case and white space; the first in reading order is kept."""
    # Off where they are not named, so that presets of one's own for a reader stay valid.
    near_duplicates: NearDuplicatesConfig = NearDuplicatesConfig(threshold=None, ngram=3)
    """Removal of documents that are nearly equal to an earlier one."""
    cleaning: CleaningConfig = CleaningConfig(fix_mojibake=False, join_hyphens=False, markup="keep")
    """What is changed in the text before it is split into sentences."""
    decontaminate: tuple[UserPath, ...] = ()
    """Files whose text must not be in the corpus, such as test sets; paragraphs that contain any of it are dropped."""
    min_document_characters: NonNegativeInt
    """Minimum document length in characters; shorter documents are dropped and counted."""
    sentences: SentencesConfig
    """How paragraphs are split into sentences."""


@dataclass(frozen=True, kw_only=True)
class SourceSettings(Checked):
    """Settings of one of several sources."""

    weight: Annotated[float, above(0), below(math.inf)]
    """How often its documents are read: 2 reads each twice, 0.5 reads half of them, chosen by a hash. To leave a source
    out, take it away."""
    language: str | None
    """Language of all its text, such as `en`; null if it has several, or if it does not matter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadingSettings(Checked):
    """Settings of everything that reads text."""

    on_undecodable: OnUndecodable
    """How to handle what is not text, torn, or no usable row: fail with its place, or skip and count the record or the
    rest of the file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusReader(ReadingSettings, ABC):
    """What a reader has to provide besides its settings.

    A reader is one file of `corpus/readers` and a line of `corpus/registry.py`, or an entry point of a package. It
    becomes a corpus together with `CorpusSettings`, and one of several sources together with `SourceSettings`. A field
    of the type `UserPath` says where the text is, so that DVC sees that it changed.
    """

    @abstractmethod
    def plan(self, shard_bytes: int, source: str = "") -> tuple[list[InputShard], list[Dropped]]:
        """Cut the input into shards of about so many bytes, in the order of reading, from the input alone.

        Returns:
            The shards, and what is left out before anything is read.
        """

    @abstractmethod
    def read_shard(self, shard: InputShard) -> Iterator[SourceDocument | Dropped]:
        """Read the documents of a shard in a fixed order, and what is left out of it, as it is met."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FilesReader(CorpusReader):
    """Base class of the readers of files."""

    path: UserPath
    """A file, a folder (searched recursively) or a glob; also a URL, such as `s3://bucket/folder`."""

    @property
    def endings(self) -> tuple[str, ...]:
        """Endings of the names of the files of a folder that are read; empty: all."""
        return ()

    @abstractmethod
    def read_part(self, part: Part) -> Iterator[SourceDocument | Dropped]:
        """Read a file, or a range of it.

        Raises:
            DataError: The file is of another format; the message names file and line.
        """

    def ranges(self, part: Part, shard_bytes: int) -> list[Part]:
        """Cut a file into ranges of about so many bytes that are read by themselves; by default it stays whole."""
        return [part]

    def plan(self, shard_bytes: int, source: str = "") -> tuple[list[InputShard], list[Dropped]]:
        """See `CorpusReader.plan`; shards of a small text are smaller, so that several processes have work."""
        parts, dropped = find_files(self.path, self.endings)
        shard_bytes = min(shard_bytes, max(_SMALL_SHARD_BYTES, sum(part.size for part in parts) // _MANY_SHARDS))
        ranges = (one for part in parts for one in self.ranges(part, shard_bytes))
        return shards_of(source, ranges, shard_bytes), dropped

    def read_shard(self, shard: InputShard) -> Iterator[SourceDocument | Dropped]:
        """See `CorpusReader.read_shard`; a file of which nothing comes is counted under `files/empty`.

        Raises:
            DataError: A file cannot be read, or has changed since the plan, or (`on_undecodable: fail`) something in it
                is damaged or no text; the message names the first ten with file and line.
        """
        bad_rows = BadRows("error", option="corpus.on_undecodable")
        for part in shard.parts:
            is_empty = True
            try:
                with naming(part.path):
                    for item in self.read_part(part):
                        is_empty = False
                        yield from valid(item, bad_rows)
                    refuse_changed(part)
            except Exception:
                bad_rows.end()  # an earlier fault may explain the error
                raise
            if is_empty and not part.start:
                yield Dropped("files/empty", part.name)
        bad_rows.end()


def valid(item: SourceDocument | Dropped, bad_rows: BadRows) -> Iterator[SourceDocument | Dropped]:
    """Yield an item of a reader, or report it if it is a fault."""
    if isinstance(item, Dropped) and item.fault:
        bad_rows.report(item.reason, *item.fault)
    else:
        yield item


def documents_of(reader: CorpusReader) -> Iterator[SourceDocument]:
    """Read the documents of all shards, without what is left out."""
    for shard in reader.plan(1 << 60)[0]:
        for item in reader.read_shard(shard):
            if isinstance(item, SourceDocument):
                yield item
