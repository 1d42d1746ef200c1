"""Fast encoding and word counting: what each stretch of text between two spaces became is remembered.

BERT's normalisation and pre-tokenisation never look across a space: each decides by single characters (control
characters, Chinese characters, case, punctuation), except canonical decomposition, which reorders combining marks only
between two characters that are not marks, and a space is none. So the tokens of a sentence are those of its stretches,
one after another, and a stretch that occurred before needs only a look-up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from tokenizers.pre_tokenizers import BertPreTokenizer

from bertline.tokenization.tokenizer import Tokenizer, bert_normalizer
from bertline.tokenization.user_words import UnsplitWords
from bertline.tokenization.vocabulary import CONTINUATION, MAX_WORD_CHARACTERS, UNK, Vocabulary

_MAX_REMEMBERED = 1 << 18
"""Remembered stretches, and words, of one process: about 60 MB each."""
_MAX_REMEMBERED_CHARACTERS = 100
"""Longer stretches (text without spaces) rarely come again."""

# In printable ASCII everything but letters and digits is punctuation for BERT.
_find_ascii_words = re.compile(r"[A-Za-z0-9]+|[^ ]").findall


class WordSplitter:
    """Normalises text and splits it into the words of BERT's pre-tokenizer."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._lowercase = vocabulary.lowercase
        self._normalize = bert_normalizer(vocabulary).normalize_str
        self._pre_tokenize = BertPreTokenizer().pre_tokenize_str
        self._unsplit = UnsplitWords(vocabulary.unsplit) if vocabulary.unsplit else None

    def __call__(self, text: str) -> list[str]:
        """Return the normalised words: runs of letters and digits, single punctuation marks, and unsplit words.

        Example:
            >>> WordSplitter(Vocabulary(tokens=(), lowercase=True))("(Café-Bar)")
            ['(', 'cafe', '-', 'bar', ')']
        """
        if self._unsplit is not None:
            parts = self._unsplit.cut(self._normalize(text))
            return [word for part, whole in parts for word in ((part,) if whole else self._words(part))]
        if text.isascii() and text.isprintable():  # several times faster, with the same words
            found: list[str] = _find_ascii_words(text.lower() if self._lowercase else text)
            return found
        return self._words(self._normalize(text))

    def _words(self, normalized: str) -> list[str]:
        return [word for word, _ in self._pre_tokenize(normalized)]


class StretchEncoder:
    """Encodes sentences to the ids of `Tokenizer.encode_literally`, several times as fast.

    Args:
        tokenizer: Its vocabulary and normalisation are used.
        dtype: Unsigned dtype that holds every token id.
        max_remembered: Stretches, and words, to remember; when there are more, all are forgotten.
    """

    def __init__(self, tokenizer: Tokenizer, dtype: npt.DTypeLike, *, max_remembered: int = _MAX_REMEMBERED) -> None:
        self._dtype = np.dtype(dtype)
        self._max_remembered = max_remembered
        words = _WordIds(tokenizer, self._dtype)
        self._tables: tuple[dict[str, bytes], ...] = (_StretchIds(WordSplitter(tokenizer.vocabulary), words), words)

    def __call__(self, sentences: Sequence[str]) -> tuple[npt.NDArray[np.unsignedinteger], npt.NDArray[np.int64]]:
        """Encode sentences.

        Returns:
            [tokens] the ids of all sentences, concatenated, and [sentences] the number of tokens of each.

        Example:
            >>> vocabulary = Vocabulary(tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"), lowercase=True)
            >>> ids, lengths = StretchEncoder(Tokenizer(vocabulary), "uint16")(["A b", "", "b"])
            >>> ids.tolist(), lengths.tolist()
            ([5, 6, 6], [2, 0, 1])
        """
        for table in self._tables:
            if len(table) > self._max_remembered:
                table.clear()
        ids_of, join = self._tables[0].__getitem__, b"".join
        encoded = [join(map(ids_of, sentence.split(" "))) for sentence in sentences]
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)) // self._dtype.itemsize
        return np.frombuffer(join(encoded), dtype=self._dtype), lengths


class _StretchIds(dict[str, bytes]):
    """Ids of stretches, as bytes; a stretch that is not there is encoded and kept."""

    def __init__(self, split: WordSplitter, words: _WordIds) -> None:
        super().__init__()
        self._split = split
        self._ids_of_word = words.__getitem__

    def __missing__(self, stretch: str) -> bytes:
        ids = b"".join(map(self._ids_of_word, self._split(stretch)))
        if len(stretch) <= _MAX_REMEMBERED_CHARACTERS:
            self[stretch] = ids
        return ids


class _WordIds(dict[str, bytes]):
    """Ids of words, as bytes; a word that is not there is split into the longest subwords and kept.

    References:
        google-research/bert, tokenization.py, WordpieceTokenizer (greedy longest match first).
    """

    def __init__(self, tokenizer: Tokenizer, dtype: np.dtype) -> None:
        super().__init__()
        ids = {token: np.array(index, dtype=dtype).tobytes() for index, token in enumerate(tokenizer.vocab)}
        self._beginnings = ids
        self._continuations = {
            token.removeprefix(CONTINUATION): known for token, known in ids.items() if token.startswith(CONTINUATION)
        }
        self._longest = max(map(len, ids))
        self._unknown = ids[UNK]

    def __missing__(self, word: str) -> bytes:
        if len(word) > MAX_WORD_CHARACTERS:
            return self._unknown
        self[word] = ids = self._split(word)
        return ids

    def _split(self, word: str) -> bytes:
        found = []
        start, table = 0, self._beginnings
        while start < len(word):
            for stop in range(min(len(word), start + self._longest), start, -1):
                ids = table.get(word[start:stop])
                if ids is not None:
                    break
            else:
                return self._unknown
            found.append(ids)
            start, table = stop, self._continuations
        return b"".join(found)
