"""Counts of words and of letters in a corpus, a file at a time."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertline.corpus.document import Document, Split, label_of
from bertline.corpus.storage import FORMAT_VERSION, KIND, read_shard, shard_paths
from bertline.foundation.engine import Counts, Engine, shard_folder
from bertline.foundation.manifests import read_manifest
from bertline.foundation.parallel import batches
from bertline.foundation.seeds import unit_interval
from bertline.foundation.stretches import distinct_stretches
from bertline.tokenization.stretches import WordSplitter, spread
from bertline.tokenization.vocabulary import Vocabulary

_BATCH_CHARACTERS = 8_000_000
_FILE = "counts.json"


@dataclass(frozen=True, slots=True)
class CorpusText:
    """The text of a corpus, whose words an engine counts."""

    folder: Path
    engine: Engine
    work: Path
    """Folder for the counts of the corpus's files."""

    def num_characters(self, split: Split) -> int:
        """Return the number of characters of a split."""
        manifest = read_manifest(self.folder, kind=KIND, format_version=FORMAT_VERSION)
        return int(manifest["counts"][split].get("characters", 0))

    def fraction(self, split: Split, characters: int) -> float:
        """Return the fraction of the documents of a split that have about so many characters."""
        return min(1.0, characters / max(1, self.num_characters(split)))

    def words(
        self, split: Split, normalization: Vocabulary | None, *, characters: int, by_label: bool = False
    ) -> dict[str, Counter[str]]:
        """Count the words of a split, or of the `fraction` of it that has about so many characters.

        Args:
            split: Split.
            normalization: Vocabulary as whose words the text is counted; with None its letters are.
            characters: Approximate amount of text.
            by_label: Whether to count by the labels with which the ids of documents begin in a corpus of several
                sources.

        Returns:
            Normalised words with their counts, by label, or under "".
        """
        fraction = self.fraction(split, characters)
        plain = dataclasses.replace(normalization, tokens=()) if normalization else None
        texts = [_Text(path.absolute(), fraction, plain, by_label) for path in shard_paths(self.folder, split)]
        what = "words" if normalization else "letters"
        out = self.work.absolute() / f"{what}-{split}"
        self.engine.map(_count, texts, out, description=f"counting {what}, {split} files")
        total: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for number in range(len(texts)):
            for label, counts in json.loads((shard_folder(out, number) / _FILE).read_bytes()).items():
                total[label].update(counts)
        return {label: total[label] for label in sorted(total)} if by_label else {"": total[""]}


@dataclass(frozen=True, slots=True)
class _Text:
    """What is counted of a file of the corpus, and how."""

    path: Path
    fraction: float
    normalization: Vocabulary | None
    by_label: bool


def _count(text: _Text, out: Path) -> Counts:
    """Count words or letters and write the counts, too many to return, to a file; the task of a `_Text`."""
    total: defaultdict[str, Counter[str]] = defaultdict(Counter)
    documents = sampled_documents(text.path, text.fraction)
    for batch in batches(documents, size=lambda each: sum(map(len, each.sentences)), most=_BATCH_CHARACTERS):
        sentences: defaultdict[str, list[str]] = defaultdict(list)
        for document in batch:
            sentences[label_of(document.id) if text.by_label else ""] += document.sentences
        for label, of_label in sentences.items():
            counted = count_words(of_label, text.normalization) if text.normalization else "".join(of_label)
            total[label].update(counted)
    (out / _FILE).write_text(json.dumps(total))
    return {}


def sampled_documents(path: Path, fraction: float) -> Iterator[Document]:
    """Yield a fraction of the documents of a file of the corpus, sampled by a hash of each one's id."""
    return read_shard(path, lambda key: fraction >= 1 or unit_interval("tokenizer sample", key) < fraction)


def count_words(sentences: Iterable[str], normalization: Vocabulary) -> Counter[str]:
    """Count the words of BERT's pre-tokenizer: runs of letters and digits, and single punctuation marks.

    Returns:
        Normalised words with their counts (Python integers: no overflow on any corpus).

    Example:
        >>> counts = count_words(["The café, the end.", "THE END"], Vocabulary(tokens=(), lowercase=True))
        >>> sorted(counts.items())
        [(',', 1), ('.', 1), ('cafe', 1), ('end', 2), ('the', 3)]
    """
    # Each distinct stretch between spaces is processed once and weighted by its count.
    numbers, stretches = distinct_stretches(" ".join(spread(sentences, normalization)))
    words_of = WordSplitter(normalization)
    words: dict[str, int] = {}
    count_before = words.get
    for stretch, count in zip(stretches, np.bincount(numbers).tolist(), strict=True):
        for word in words_of(stretch):
            words[word] = count_before(word, 0) + count
    return Counter(words)
