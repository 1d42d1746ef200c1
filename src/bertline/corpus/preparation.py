"""Documents before they are written: cleaned, split into sentences, selected, and assigned to train or validation."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from bertline.corpus.document import SourceDocument, Split
from bertline.corpus.quality.drops import Change, DropSamples
from bertline.corpus.quality.word_hashes import Signature
from bertline.corpus.registry import CorpusConfig
from bertline.corpus.sentences.rules import RuleSplitter
from bertline.corpus.sentences.splitter import Headings, Splitter, place_headings
from bertline.foundation.seeds import unit_interval
from bertline.foundation.stretches import has_single_spaces

# Control characters, zero-width and direction marks, soft hyphens (they would split words into unknown tokens), lone
# surrogates (not text, and not encodable) and the replacement character.
_UNWANTED = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ud800-\udfff\ufeff\ufffd]"
)
_RULES = RuleSplitter()
_KEY_BYTES = 12  # the probability of any collision among 10**9 texts is below 10**-10


class PreparedParagraph(NamedTuple):  # made, and sent by workers, several times as fast as a frozen dataclass
    """One cleaned block of text."""

    key: bytes
    """Duplicate key, equal for blocks that differ only in case and white space; empty if it was not asked for."""
    sentences: tuple[str, ...]
    characters: int
    """Total length of the sentences."""
    words: int


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A cleaned document."""

    id: str
    group: str
    split: Split | None
    key: bytes
    """Duplicate key, equal for documents that differ only in case and white space."""
    paragraphs: tuple[PreparedParagraph, ...]
    contaminated: tuple[int, ...] = ()
    """Indices of the paragraphs with text of `corpus.decontaminate`."""
    signature: Signature | None = None
    """What near duplicates are found by, if they are looked for."""
    dropped_headings: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    """What cleaning changed, dropped or found."""

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(sentence for paragraph in self.paragraphs for sentence in paragraph.sentences)


def prepare_documents(
    batch: list[SourceDocument],
    *,
    splitter: Splitter = _RULES,
    headings: Headings = "stay",
    paragraph_keys: bool = True,
) -> list[PreparedDocument]:
    """Clean a batch of documents and split it into sentences.

    This is a pure function, so the corpus does not depend on the number of workers.
    """
    return [_prepare(document, splitter, headings, paragraph_keys) for document in batch]


def _prepare(
    document: SourceDocument, splitter: Splitter, headings: Headings, paragraph_keys: bool
) -> PreparedDocument:
    texts = [text for text in map(clean, document.paragraphs) if text]
    key = _key_of_folded(" ".join(map(str.casefold, texts)))  # one by one: most are ASCII, which is folded faster
    if splitter.keeps_lines:
        lines = (map(clean, paragraph.splitlines()) for paragraph in document.paragraphs)
        texts = [text for text in ("\n".join(filter(None, part)) for part in lines) if text]
    split, left_out = place_headings([(text, splitter.split(text)) for text in texts], headings)
    paragraphs = tuple(_paragraph(text, tuple(sentences), paragraph_keys) for text, sentences in split)
    # Without a group from the source, the key is the group, so that equal texts are in the same split.
    group = clean(document.group) or key.hex()
    return PreparedDocument(clean(document.id), group, document.split, key, paragraphs, dropped_headings=left_out)


def _paragraph(text: str, sentences: tuple[str, ...], with_key: bool) -> PreparedParagraph:
    words = text.count(" ") + text.count("\n") + 1  # of cleaned text
    return PreparedParagraph(duplicate_key(text) if with_key else b"", sentences, sum(map(len, sentences)), words)


def clean(text: str) -> str:
    r"""Clean one block of text: no control characters, single spaces, one line, Unicode NFC.

    Example:
        >>> clean("Cafe\u0301\x00  au\n lait ")
        'Café au lait'
    """
    if not has_single_spaces(text):
        text = " ".join(text.split())
        if not text.isprintable():
            text = " ".join(_UNWANTED.sub("", text).split())
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def duplicate_key(text: str) -> bytes:
    """Return a 12-byte hash that is equal for texts that differ only in case and white space.

    Example:
        >>> duplicate_key("The  cat") == duplicate_key("the cat")
        True
    """
    return _key_of_folded(" ".join(text.casefold().split()))


def _key_of_folded(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES).digest()


# Which documents are kept, and which of them are for validation.


def select_documents(
    documents: Iterable[PreparedDocument],
    config: CorpusConfig,
    dropped: Counter[str],
    samples: DropSamples | None = None,
) -> Iterator[PreparedDocument]:
    """Drop empty, duplicate and short documents, counted by reason; the first duplicate in reading order is kept.

    With `deduplicate: paragraph`, paragraphs that occurred before are removed, regardless of the split, so that no
    validation paragraph occurs in train.
    """
    seen: set[bytes] = set()
    samples = DropSamples() if samples is None else samples
    for document in documents:
        for heading in document.dropped_headings:
            dropped["paragraphs/heading"] += 1
            samples.add("paragraphs/heading", document.id, heading)
        if not document.paragraphs:
            dropped["documents/empty"] += 1
            samples.add("documents/empty", document.id, "")
            continue
        if config.deduplicate == "document":
            paragraphs = () if document.key in seen else document.paragraphs
            seen.add(document.key)
        elif config.deduplicate == "paragraph":
            paragraphs = tuple(_first_seen(document.paragraphs, seen))
            dropped["paragraphs/duplicate"] += len(document.paragraphs) - len(paragraphs)
            new_ids = set(map(id, paragraphs))
            for paragraph in document.paragraphs:
                if id(paragraph) not in new_ids:
                    samples.add("paragraphs/duplicate", document.id, " ".join(paragraph.sentences))
        else:
            paragraphs = document.paragraphs
        if not paragraphs:
            dropped["documents/duplicate"] += 1
            samples.add("documents/duplicate", document.id, " ".join(document.sentences))
        elif sum(paragraph.characters for paragraph in paragraphs) < config.min_document_characters:
            dropped["documents/too_short"] += 1
            samples.add("documents/too_short", document.id, " ".join(document.sentences))
        else:
            yield dataclasses.replace(document, paragraphs=paragraphs)


def split_position(group: str, seed: int) -> float:
    """Return the hash of a group as a number in [0, 1); groups below `validation_fraction` are for validation."""
    return unit_interval(seed, "validation", group)


def split_of(document: PreparedDocument, config: CorpusConfig) -> Split:
    """Return the split of a document: that of the source if given, else by a hash of its group."""
    if document.split is not None:
        return document.split
    position = split_position(document.group, config.split_seed)
    return "validation" if position < config.validation_fraction else "train"


def _first_seen(paragraphs: Iterable[PreparedParagraph], seen: set[bytes]) -> Iterator[PreparedParagraph]:
    for paragraph in paragraphs:
        if paragraph.key not in seen:
            seen.add(paragraph.key)
            yield paragraph
