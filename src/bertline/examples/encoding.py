"""The corpus as token ids: flat memory-mapped arrays with random access to every sentence of every document."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertline.corpus.document import Copies, Document, label_of, language_of
from bertline.examples.store import Array, token_id_dtype
from bertline.foundation.parallel import batches, ordered_map
from bertline.tokenization.stretches import StretchEncoder
from bertline.tokenization.tokenizer import Tokenizer

# Languages and copies of documents: a random second segment has the language of the first, and is of another text.

_COPIES = "copies.npy"


@dataclass(frozen=True, slots=True)
class LanguageIndex:
    """The documents of each language, with access to any other one of the same language in constant time."""

    order: Array
    """[documents] int64 indices of the documents, those of a language together."""
    places: Array
    """[documents] int64 place of each document in `order`."""
    languages: Array
    """[documents] int64 number of each document's language."""
    starts: Array
    """[languages + 1] int64 place in `order` where each language begins."""

    @classmethod
    def of(cls, languages: Sequence[int] | npt.NDArray[np.int64]) -> LanguageIndex:
        """Make the index from the number of each document's language.

        Example:
            >>> index = LanguageIndex.of([0, 1, 0, 0])
            >>> index.num_others(0), [index.other(2, number) for number in range(2)], index.num_others(1)
            (2, [0, 3], 0)
        """
        numbers = np.asarray(languages, dtype=np.int64)
        order = np.argsort(numbers, kind="stable")
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return cls(order, places, numbers, np.concatenate([[0], np.cumsum(np.bincount(numbers))]).astype(np.int64))

    @classmethod
    def open(cls, folder: Path) -> LanguageIndex | None:
        """Memory-map the files that `write` wrote; None if there are none."""
        paths = [folder / f"language_{field.name}.npy" for field in fields(cls)]
        if not paths[0].exists():
            return None
        return cls(*(np.asarray(np.load(path, mmap_mode="r")) for path in paths))

    def write(self, folder: Path) -> None:
        """Write each array to a file."""
        for one in fields(self):
            np.save(folder / f"language_{one.name}.npy", getattr(self, one.name))

    def num_others(self, document: int, *, copies: int = 1) -> int:
        """Return how many other documents have the language of this one, the first of some copies."""
        language = self.languages[document]
        return int(self.starts[language + 1] - self.starts[language]) - copies

    def other(self, document: int, number: int, *, copies: int = 1) -> int:
        """Return another document of the same language, by a number below `num_others`."""
        place = int(self.starts[self.languages[document]]) + number
        return int(self.order[place + copies * (place >= self.places[document])])


class SourcesOfDocuments:
    """Languages and copies of documents as they are read, by their ids in a corpus of several sources.

    Ids begin with labels and, of copies, end with a number. A document without language has that of its source alone.
    """

    def __init__(self) -> None:
        self._copies = Copies()
        self._firsts = array("q")
        self._numbers: dict[tuple[str | None, str], int] = {}
        self._of_documents = array("q")
        self._kept: list[npt.NDArray[np.bool_]] = []

    def add(self, document_id: str) -> None:
        """Add a document."""
        label = label_of(document_id)
        language = language_of(label)
        key = (language, "" if language is not None else label)
        self._of_documents.append(self._numbers.setdefault(key, len(self._numbers)))
        is_copy = self._copies.is_copy(document_id)
        self._firsts.append(self._firsts[-1] if is_copy else len(self._firsts))

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Say which of the next documents, in their order, are in the encoded corpus."""
        self._kept.append(kept)

    def write(self, folder: Path) -> int:
        """Write the index of the kept documents, if they have several languages, and which are copies, if any are.

        Returns:
            The number of kept documents that are copies of another one.
        """
        if not self._kept:
            return 0
        kept_lengths = np.concatenate(self._kept)
        if len({language for language, _ in self._numbers if language is not None}) > 1:
            languages = np.frombuffer(self._of_documents, dtype=np.int64)
            LanguageIndex.of(languages[kept_lengths]).write(folder)
        ranges = copy_ranges(np.frombuffer(self._firsts, dtype=np.int64)[kept_lengths])
        copies = len(ranges) - len(np.unique(ranges[:, 0]))
        if copies:
            np.save(folder / _COPIES, ranges)
        return copies


def copy_ranges(firsts: npt.NDArray[np.int64]) -> Array:
    """Return [documents, 2] where the copies of each document begin and end, itself among them.

    Args:
        firsts: [documents] a number for each document, equal for copies, which lie next to each other.

    Example:
        >>> copy_ranges(np.array([0, 0, 2, 5])).tolist()
        [[0, 2], [0, 2], [2, 3], [3, 4]]
    """
    begins = np.flatnonzero(np.diff(firsts, prepend=-1))
    sizes = np.diff(begins, append=len(firsts))
    return np.repeat(np.stack([begins, begins + sizes], axis=1), sizes, axis=0)


def open_copies(folder: Path) -> Array | None:
    """Memory-map what `SourcesOfDocuments` wrote of copies; None if there are none."""
    path = folder / _COPIES
    return np.asarray(np.load(path, mmap_mode="r")) if path.exists() else None


_BATCH_CHARACTERS = 1_000_000
_SHORT_SENTENCES, _MANY_SHORT = 5, 0.3
"""Documents of fewer sentences are short, and a larger share of such ones are many."""


@dataclass(frozen=True, slots=True)
class EncodedCorpus:
    """The encoded documents of one split.

    Document d has the sentences from `document_starts[d]` up to `document_starts[d + 1]`, and sentence s the tokens
    from `sentence_starts[s]` up to `sentence_starts[s + 1]` (end exclusive). No document and no sentence is empty.
    """

    tokens: Array
    """[tokens] token ids, without special tokens."""
    sentence_starts: Array
    """[sentences + 1] int64."""
    document_starts: Array
    """[documents + 1] int64."""
    languages: LanguageIndex | None = None
    """Documents by language, if there are several."""
    copies: Array | None = None
    """[documents, 2] where the copies of each document begin and end, if any document has copies."""
    has_short_documents: bool = field(init=False)
    """Whether so many documents have few sentences that a large part of the pairs are of a last sentence alone."""

    def __post_init__(self) -> None:
        share = float(np.mean(np.diff(self.document_starts) < _SHORT_SENTENCES)) if self.num_documents else 0.0
        object.__setattr__(self, "has_short_documents", share > _MANY_SHORT)

    @property
    def num_documents(self) -> int:
        """Number of documents; each has at least one token."""
        return len(self.document_starts) - 1

    def copies_of(self, document: int) -> tuple[int, int]:
        """Return where the copies of a document begin and end, itself among them."""
        if self.copies is None:
            return document, document + 1
        first, stop = self.copies[document].tolist()
        return first, stop

    @classmethod
    def open(cls, folder: Path) -> EncodedCorpus:
        """Memory-map the files written by `encode_corpus`."""
        dtype = (folder / "dtype").read_text()
        return cls(
            _mapped(folder / "tokens", dtype),
            _mapped(folder / "sentence_starts", "int64"),
            _mapped(folder / "document_starts", "int64"),
            LanguageIndex.open(folder),
            open_copies(folder),
        )

    @classmethod
    def from_lists(cls, documents: Iterable[Iterable[list[int]]]) -> EncodedCorpus:
        """Build an encoded corpus from documents, each a list of sentences, each a list of token ids.

        Empty sentences and documents are left out.

        Example:
            >>> corpus = EncodedCorpus.from_lists([[[5, 6], [7]], [[8]]])
            >>> corpus.sentence_starts.tolist(), corpus.document_starts.tolist()
            ([0, 2, 3, 4], [0, 2, 3])
        """
        with_tokens = [[sentence for sentence in document if sentence] for document in documents]
        with_tokens = [document for document in with_tokens if document]
        sentences = [sentence for document in with_tokens for sentence in document]
        return cls(
            np.array([token for sentence in sentences for token in sentence], dtype=np.int64),
            _starts([len(sentence) for sentence in sentences]),
            _starts([len(document) for document in with_tokens]),
        )


def encode_corpus(
    documents: Iterable[Document],
    tokenizer_folder: Path,
    folder: Path,
    *,
    num_workers: int,
    sources: SourcesOfDocuments | None = None,
) -> Counter[str]:
    """Encode documents in order into `folder`, with a few batches in memory at a time.

    Args:
        documents: Documents.
        tokenizer_folder: Tokenizer.
        folder: Folder to write.
        num_workers: Number of processes.
        sources: Takes languages and copies of the documents and writes them next to the tokens (17 bytes a document in
            memory); None if ids do not begin with labels.

    Returns:
        Counts: `documents`, `sentences` and `tokens` written; `documents/no_tokens` and `sentences/no_tokens` left out
        because they have no tokens (only control characters, for instance); `documents/copies`, if there are any, those
        of `documents` that are copies of another one; `characters`, without spaces, and `unknown_characters`, those of
        words that become [UNK].
    """
    folder.mkdir(parents=True)
    dtype = token_id_dtype(Tokenizer.load(tokenizer_folder).vocab_size)
    (folder / "dtype").write_text(dtype.name)
    counts: Counter[str] = Counter()
    num_tokens = num_sentences = 0
    sentences = (document.sentences for document in _noted(documents, sources))
    in_batches = batches(sentences, size=lambda texts: sum(map(len, texts)), most=_BATCH_CHARACTERS)
    work = partial(_encode_batch, tokenizer_folder=tokenizer_folder)
    with (
        (folder / "tokens").open("wb") as tokens,
        (folder / "sentence_starts").open("wb") as sentence_starts,
        (folder / "document_starts").open("wb") as document_starts,
    ):
        sentence_starts.write(np.zeros(1, dtype=np.int64).tobytes())
        document_starts.write(np.zeros(1, dtype=np.int64).tobytes())
        for part, left_out, kept in ordered_map(work, in_batches, num_workers=num_workers):
            tokens.write(part.tokens.tobytes())
            sentence_starts.write((part.sentence_starts[1:] + num_tokens).tobytes())
            document_starts.write((part.document_starts[1:] + num_sentences).tobytes())
            num_tokens += len(part.tokens)
            num_sentences += len(part.sentence_starts) - 1
            counts.update(left_out)
            if sources is not None:
                sources.keep(kept)
            counts["documents"] += part.num_documents
    counts.update({"sentences": num_sentences, "tokens": num_tokens})
    if sources is not None and (copies := sources.write(folder)):
        counts["documents/copies"] = copies
    return counts


def _noted(documents: Iterable[Document], sources: SourcesOfDocuments | None) -> Iterator[Document]:
    for document in documents:
        if sources is not None:
            sources.add(document.id)
        yield document


def _encode_batch(
    documents: list[tuple[str, ...]], tokenizer_folder: Path
) -> tuple[EncodedCorpus, dict[str, int], npt.NDArray[np.bool_]]:
    """Return the encoded documents, counts of what has no tokens, and which documents have some."""
    tokenizer, encoder = _encoder(tokenizer_folder)
    # Where tokens have the space before them, all sentences but the first of a document do, as in its text.
    space = " " if tokenizer.sees_spaces else ""
    sentences = [space * (place > 0) + one for document in documents for place, one in enumerate(document)]
    tokens, lengths = encoder(sentences)
    owners = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    has_tokens = lengths > 0
    in_document = np.bincount(owners[has_tokens], minlength=len(documents))
    kept = in_document > 0
    encoded = EncodedCorpus(tokens, _starts(lengths[has_tokens]), _starts(in_document[kept]))
    left_out = {
        "sentences/no_tokens": len(lengths) - (len(encoded.sentence_starts) - 1),
        "documents/no_tokens": len(documents) - encoded.num_documents,
        "characters": sum(len(sentence) - sentence.count(" ") for sentence in sentences),
        "unknown_characters": _unknown_characters(tokenizer, sentences, tokens, lengths),
    }
    return encoded, left_out, kept


def _unknown_characters(tokenizer: Tokenizer, sentences: list[str], tokens: Array, lengths: Array) -> int:
    """Return how many characters of the sentences are in words that became [UNK]: one token stands for all of them."""
    owners = np.searchsorted(np.cumsum(lengths), np.flatnonzero(tokens == tokenizer.unk_id), side="right")
    affected = [sentences[index] for index in np.unique(owners).tolist()]
    return sum(
        stop - start
        for ids, places in tokenizer.encode_with_places(affected)
        for index, (start, stop) in zip(ids, places, strict=True)
        if index == tokenizer.unk_id
    )


@lru_cache(maxsize=1)
def _encoder(folder: Path) -> tuple[Tokenizer, StretchEncoder]:
    tokenizer = Tokenizer.load(folder)
    return tokenizer, StretchEncoder(tokenizer, token_id_dtype(tokenizer.vocab_size))


def _starts(lengths: npt.ArrayLike) -> Array:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.asarray(lengths, dtype=np.int64))])


def _mapped(path: Path, dtype: str) -> Array:
    if path.stat().st_size == 0:
        return np.empty(0, dtype=dtype)
    # A plain ndarray view: indexing an np.memmap is several times slower.
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
