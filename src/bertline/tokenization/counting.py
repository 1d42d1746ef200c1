"""Counts of words and of letters in a corpus, a file at a time.

BERT's normalisation and pre-tokenisation never look across a space: each decides by single characters (control
characters, Chinese characters, case, punctuation), except canonical decomposition, which reorders combining marks only
between two characters that are not marks, and a space is none. So the words of a sentence are those of its stretches
between two spaces, and each distinct stretch of a text is looked at once.
"""

import dataclasses
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import BertPreTokenizer

from bertline.corpus.document import Document, Split, distinct_stretches, label_of
from bertline.corpus.storage import counts_of, read_shard, shard_paths
from bertline.foundation.engine import Counts, Engine, shard_folder
from bertline.foundation.parallel import batches
from bertline.foundation.seeds import unit_interval
from bertline.tokenization.tokenizer import bert_normalizer
from bertline.tokenization.vocabulary import UNK, Vocabulary

_BATCH_CHARACTERS = 8_000_000
_FILE = "counts.json"

# In printable ASCII everything but letters and digits is punctuation for BERT.
_find_ascii_words = re.compile(r"[A-Za-z0-9]+|[^ ]").findall


@dataclass(frozen=True, slots=True)
class CorpusText:
    """The text of a corpus, whose words an engine counts, with a folder `work` for the counts of each file."""

    folder: Path
    engine: Engine
    work: Path

    def num_characters(self, split: Split) -> int:
        """Return the number of characters of a split."""
        return counts_of(self.folder, split)["characters"]

    def fraction(self, split: Split, characters: int) -> float:
        """Return the fraction of the documents of a split that have about so many characters."""
        return min(1.0, characters / max(1, self.num_characters(split)))

    def words(
        self, split: Split, normalization: Vocabulary | None, *, characters: int, by_label: bool = False
    ) -> dict[str, Counter[str]]:
        """Count the words of a split, or of the `fraction` of it that has about so many characters.

        Returns:
            Words as a vocabulary normalises them, or letters without one, with their counts: under "", or with
            `by_label` by the labels with which the ids of documents begin in a corpus of several sources.
        """
        fraction = self.fraction(split, characters)
        plain = dataclasses.replace(normalization, tokens=()) if normalization else None
        # A file is counted again where any of these differs.
        shards = [(path.absolute(), fraction, plain, by_label) for path in shard_paths(self.folder, split)]
        what = "words" if normalization else "letters"
        out = self.work.absolute() / f"{what}-{split}"
        self.engine.map(_count, shards, out, description=f"counting {what}, {split} files")
        total: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for number in range(len(shards)):
            for label, counts in json.loads((shard_folder(out, number) / _FILE).read_bytes()).items():
                total[label].update(counts)
        return {label: total[label] for label in sorted(total)} if by_label else {"": total[""]}


def _count(shard: tuple[Path, float, Vocabulary | None, bool], out: Path) -> Counts:
    """Count words or letters of a file of the corpus and write the counts, too many to return, to a file."""
    path, fraction, normalization, by_label = shard
    total: defaultdict[str, Counter[str]] = defaultdict(Counter)
    documents = sampled_documents(path, fraction)
    for batch in batches(documents, size=lambda each: sum(map(len, each.sentences)), most=_BATCH_CHARACTERS):
        sentences: defaultdict[str, list[str]] = defaultdict(list)
        for document in batch:
            sentences[label_of(document.id) if by_label else ""] += document.sentences
        for label, texts in sentences.items():
            total[label].update(count_words(texts, normalization) if normalization else "".join(texts))
    (out / _FILE).write_text(json.dumps(total))
    return {}


def sampled_documents(path: Path, fraction: float) -> Iterator[Document]:
    """Yield a fraction of the documents of a file of the corpus, sampled by a hash of each one's id."""
    for document in read_shard(path):
        if fraction >= 1 or unit_interval("tokenizer sample", document.id) < fraction:
            yield document


def count_words(sentences: Iterable[str], normalization: Vocabulary) -> Counter[str]:
    """Count the words of BERT's pre-tokenizer: runs of letters and digits, and single punctuation marks.

    Returns:
        Normalised words with their counts (Python integers: no overflow on any corpus).
    """
    # Each distinct stretch between spaces is processed once and weighted by its count.
    numbers, stretches = distinct_stretches(" ".join(sentences))
    words_of = WordSplitter(normalization)
    words: dict[str, int] = {}
    count_before = words.get
    for stretch, count in zip(stretches, np.bincount(numbers).tolist(), strict=True):
        for word in words_of(stretch):
            words[word] = count_before(word, 0) + count
    return Counter(words)


class WordSplitter:
    """Normalises text and splits it into the words of BERT's pre-tokenizer."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._lowercase, self._has_unsplit = vocabulary.lowercase, bool(vocabulary.unsplit)
        self._normalize = bert_normalizer(vocabulary).normalize_str
        # Its model makes one token of each word, whatever it is.
        self._words = Tokenizer(WordLevel({UNK: 0}, unk_token=UNK))
        self._words.pre_tokenizer = BertPreTokenizer()
        self._words.add_tokens([AddedToken(word, single_word=True) for word in vocabulary.unsplit])

    def __call__(self, text: str) -> list[str]:
        """Return the normalised words: runs of letters and digits, single punctuation marks, and unsplit words.

        >>> WordSplitter(Vocabulary(tokens=(), lowercase=True))("(Café-Bar)")
        ['(', 'cafe', '-', 'bar', ')']
        """
        if not self._has_unsplit and text.isascii() and text.isprintable():  # several times faster, the same words
            if text.isalnum():
                return [text.lower() if self._lowercase else text]
            ascii_words: list[str] = _find_ascii_words(text.lower() if self._lowercase else text)
            return ascii_words
        normalized = self._normalize(text)
        return [normalized[start:end] for start, end in self._words.encode(normalized).offsets]
