"""The corpus as token ids: a shard for each of its files, with random access to every sentence of every document."""

import dataclasses
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bertline.corpus.document import Document, are_copies, label_of, language_of
from bertline.corpus.storage import read_shard
from bertline.examples.config import ExamplesConfig
from bertline.examples.store import Array, mapped, token_id_dtype
from bertline.foundation.engine import Counts
from bertline.foundation.parallel import batches
from bertline.foundation.seeds import seed_for
from bertline.tokenization.tokenizer import SentenceIds, Tokenizer, sentence_encoder

COUNTED = (
    "documents", "documents/no_tokens", "sentences", "sentences/no_tokens", "tokens", "characters",
    "unknown_characters",
)  # fmt: skip
"""What `encode_file` counts of every file."""
_BATCH_CHARACTERS = 1_000_000


class EncodedShard(NamedTuple):
    """The encoded documents of a file of the corpus, all numbered from 0.

    Document d has the sentences from `document_starts[d]` up to `document_starts[d + 1]`, and sentence s the tokens
    from `sentence_starts[s]` up to `sentence_starts[s + 1]` (end exclusive). No document and no sentence is empty.
    """

    tokens: Array
    """[tokens] token ids, without special tokens."""
    sentence_starts: Array
    """[sentences + 1] int64."""
    document_starts: Array
    """[documents + 1] int64."""
    copies: Array
    """[documents] the first of the copies of each document, which follow each other; empty if none has copies."""
    languages: Array
    """[documents] the number of each document's language, in their alphabetical order; empty if ids say none."""

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Map the files of `save` into memory."""
        return cls(*(mapped(folder / f"{name}.npy") for name in cls._fields))

    def save(self, folder: Path) -> None:
        """Write each array to a file."""
        for name, array in self._asdict().items():
            np.save(folder / f"{name}.npy", array)

    def counts(self) -> dict[str, int]:
        """Return how many documents, sentences and tokens there are, and documents of few sentences."""
        in_document = np.diff(self.document_starts)
        return {
            "documents": len(in_document),
            "sentences": len(self.sentence_starts) - 1,
            "tokens": len(self.tokens),
            "short": int((in_document < 5).sum()),
            "one_sentence": int((in_document == 1).sum()),
        }


class DocumentPlace(NamedTuple):
    """Where the sentences of a document are."""

    starts: memoryview
    """Starts of the sentences of its shard. (A view gives Python's integers several times as fast as an array.)"""
    first: int
    last: int
    """Its sentences, from `first` up to `last` (exclusive)."""
    tokens_before: int
    """Tokens of the shards before."""


class EncodedCorpus:
    """The encoded documents of a split; documents and tokens are numbered through all shards."""

    def __init__(self, shards: Sequence[EncodedShard | Path], counts: Sequence[Counts]) -> None:
        """Take shards, or folders, which are mapped at their first use, and what `encode_file` returns of each."""
        self.shards, self.counts = shards, counts
        self.document_bounds = _bounds(each["documents"] for each in counts)
        """[shards + 1] documents before each shard, and of all."""
        self.token_bounds = _bounds(each["tokens"] for each in counts)
        """[shards + 1] tokens before each shard, and of all."""
        self.num_documents = self.document_bounds[-1]
        self.has_short_documents = sum(each["short"] for each in counts) > 0.3 * self.num_documents
        """Whether so many documents have fewer than five sentences that many pairs are of a last sentence alone."""
        names = {name for each in counts for name in each.get("languages", {})}
        self.has_languages = sum(not name.startswith("/") for name in names) > 1
        """Whether there are several languages; that of a document without one is its source's alone."""
        self._in_language: dict[str, Array] = {}
        self._opened: dict[int, EncodedShard] = {}

    def shard(self, number: int) -> EncodedShard:
        """Return a shard."""
        if number not in self._opened:
            shard = self.shards[number]
            self._opened[number] = EncodedShard.open(shard) if isinstance(shard, Path) else shard
        return self._opened[number]

    def place(self, document: int) -> DocumentPlace:
        """Return where the sentences of a document are."""
        number = bisect_right(self.document_bounds, document) - 1
        shard = self.shard(number)
        starts, within = shard.document_starts.data, document - self.document_bounds[number]
        return DocumentPlace(shard.sentence_starts.data, starts[within], starts[within + 1], self.token_bounds[number])

    def sentence_bounds(self, document: int) -> list[int]:
        """Return where the sentences of a document begin, and where the last one ends, among all tokens."""
        starts, first, last, tokens_before = self.place(document)
        return [tokens_before + start for start in starts[first : last + 1]]

    def copies_of(self, document: int) -> tuple[int, int]:
        """Return where the copies of a document begin and end, itself among them."""
        number = bisect_right(self.document_bounds, document) - 1
        before, copies = self.document_bounds[number], self.shard(number).copies
        if not len(copies):
            return document, document + 1
        first = copies[document - before]
        return before + int(first), before + int(np.searchsorted(copies, first, side="right"))

    def in_language_of(self, document: int) -> Array:
        """Return the documents, ascending, that have the language of this one."""
        number = bisect_right(self.document_bounds, document) - 1
        code = self.shard(number).languages[document - self.document_bounds[number]]
        name = sorted(self.counts[number]["languages"])[code]
        if name not in self._in_language:
            of_shards = []
            for shard, (before, counts) in enumerate(zip(self.document_bounds, self.counts, strict=False)):
                if name in counts["languages"]:
                    code = sorted(counts["languages"]).index(name)
                    of_shards.append(before + np.flatnonzero(self.shard(shard).languages == code))
            self._in_language[name] = np.concatenate(of_shards)
        return self._in_language[name]

    def copy_spans(self, starts: Array, lengths: Array, places: Array, out: Array) -> None:
        """Copy spans of tokens to places of an array. Of each shard no more than its spans need is in memory."""
        numbers = np.searchsorted(self.token_bounds, starts, side="right") - 1
        for number in np.unique(numbers).tolist():
            shard = self.shards[number]
            tokens = mapped(shard / "tokens.npy") if isinstance(shard, Path) else shard.tokens
            of_shard = np.flatnonzero((numbers == number) & (lengths > 0))
            for chosen in np.array_split(of_shard, -(-len(of_shard) // 4096) or 1):
                sources = indices_of(starts[chosen] - self.token_bounds[number], lengths[chosen])
                out[indices_of(places[chosen], lengths[chosen])] = tokens[sources]


def with_shuffled_sentences(document: Document, *, together: int, seed: int) -> Document:
    """Return the document with its sentences in random order, in runs that stay together; a pure function.

    Two segments of a sequence then come from anywhere in the document: they have its subject in common, and seldom the
    words of one paragraph, by which neighbouring segments are recognised.
    """
    sentences = document.sentences
    rng = random.Random(seed_for(seed, "shuffle_sentences", document.id))
    runs = [sentences[start : start + together] for start in range(0, len(sentences), together)]
    # Python guarantees identical results in all versions only for `random()`.
    order = sorted((rng.random(), number) for number in range(len(runs)))
    return dataclasses.replace(document, sentences=tuple(one for _, number in order for one in runs[number]))


def encode_file(path: Path, out: Path, *, tokenizer_folder: Path, config: ExamplesConfig, has_labels: bool) -> Counts:
    """Encode the documents of a file of the corpus into the arrays of an `EncodedShard`; the task of a shard.

    With `has_labels` the ids of documents begin with labels and end with numbers of copies, which lie next to each
    other in one file.

    Returns:
        `EncodedShard.counts`; `documents/no_tokens` and `sentences/no_tokens` left out because they have no tokens
        (only control characters, for instance); `characters`, without spaces, and `unknown_characters`, those of words
        that become [UNK]; of documents with labels, `documents/copies`, those of `documents` that are copies of another
        one, and `languages`, the number of documents of each.
    """
    tokenizer, encoder = _encoder(tokenizer_folder)
    counts: Counter[str] = Counter()
    ids: list[str] = []
    in_document = [np.empty(0, dtype=np.int64)]  # number of sentences with tokens
    in_sentence, tokens = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=token_id_dtype(tokenizer.vocab_size))]
    of_file = read_shard(path)
    if (together := config.shuffle_sentences) is not None:
        of_file = (with_shuffled_sentences(document, together=together, seed=config.seed) for document in of_file)
    for documents in batches(of_file, size=lambda each: sum(map(len, each.sentences)), most=_BATCH_CHARACTERS):
        texts = [document.sentences for document in documents]
        # Where tokens have the space before them, all sentences but the first of a document do, as in its text.
        space = " " if tokenizer.sees_spaces else ""
        sentences = [space * (place > 0) + one for text in texts for place, one in enumerate(text)]
        batch, lengths = encoder(sentences)
        owners = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        ids += [document.id for document in documents] if has_labels else []
        in_document.append(np.bincount(owners[lengths > 0], minlength=len(texts)))
        in_sentence.append(lengths)
        tokens.append(batch)
        counts["characters"] += sum(len(sentence) - sentence.count(" ") for sentence in sentences)
        counts["unknown_characters"] += _unknown_characters(tokenizer, sentences, batch, lengths)
    lengths, numbers = np.concatenate(in_sentence), np.concatenate(in_document)
    counts["sentences/no_tokens"], counts["documents/no_tokens"] = int((lengths == 0).sum()), int((numbers == 0).sum())
    copies = languages = np.empty(0, dtype=np.int64)
    in_languages: dict[str, int] = {}
    if has_labels:
        copies, languages, in_languages = _labelled(ids, numbers > 0)
        counts["documents/copies"] = len(copies) - len(np.unique(copies))
    shard = EncodedShard(
        np.concatenate(tokens), starts_of(lengths[lengths > 0]), starts_of(numbers[numbers > 0]), copies, languages
    )
    shard.save(out)
    return {**counts, **shard.counts(), **({"languages": in_languages} if has_labels else {})}


def _labelled(ids: list[str], has_tokens: npt.NDArray[np.bool_]) -> tuple[Array, Array, dict[str, int]]:
    """Return `copies` and `languages` of the documents with tokens, and the number of these in each language."""
    originals = np.maximum.accumulate([0 if is_copy else number for number, is_copy in enumerate(are_copies(ids))])
    _, firsts, inverse = np.unique(originals[has_tokens], return_index=True, return_inverse=True)
    copies = firsts[inverse] if len(firsts) < len(inverse) else firsts[:0]
    of_documents = [language_of(label) or f"/{label}" for label in map(label_of, ids)]
    names, codes = np.unique(np.array(of_documents, dtype=np.str_), return_inverse=True)
    languages = codes[has_tokens]
    in_language = np.bincount(languages, minlength=len(names)).tolist()
    return copies, languages, dict(zip(names.tolist(), in_language, strict=True))


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
def _encoder(folder: Path) -> tuple[Tokenizer, Callable[[Sequence[str]], SentenceIds]]:
    tokenizer = Tokenizer.load(folder)
    return tokenizer, sentence_encoder(tokenizer, token_id_dtype(tokenizer.vocab_size))


def indices_of(starts: Array, lengths: Array) -> Array:
    """Return the concatenated ranges `start, ..., start + length - 1` of all starts and lengths.

    >>> indices_of(np.array([10, 50]), np.array([3, 2])).tolist()
    [10, 11, 12, 50, 51]
    """
    return np.arange(lengths.sum()) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)


def starts_of(lengths: npt.ArrayLike) -> Array:
    """Return where each of some parts begins that lie one after another, and where the last one ends."""
    return np.append(0, np.cumsum(lengths, dtype=np.int64))


def _bounds(sizes: Iterable[int]) -> list[int]:
    return list(accumulate(sizes, initial=0))
