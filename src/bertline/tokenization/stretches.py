"""Fast encoding and word counting: what each stretch of text between two spaces became is remembered.

BERT's normalisation and pre-tokenisation never look across a space: each decides by single characters (control
characters, Chinese characters, case, punctuation), except canonical decomposition, which reorders combining marks only
between two characters that are not marks, and a space is none. So the tokens of a sentence are those of its stretches,
one after another, and a stretch that occurred before needs only a look-up. Each distinct stretch of a batch is looked
up once; a frequent mark, which is a word of its own, first gets spaces next to it, so that most stretches are words.

Byte-level BPE looks across a space only where white space stands next to it, and takes the space into the word behind
it: there a stretch begins with its space. Of any other tokenizer nothing is assumed: a text is one stretch.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from tokenizers.pre_tokenizers import BertPreTokenizer

from bertline.foundation.stretches import distinct_stretches
from bertline.tokenization.tokenizer import Tokenizer, bert_normalizer
from bertline.tokenization.vocabulary import MAX_WORD_CHARACTERS, Vocabulary
from bertline.tokenization.words import UnsplitWords

_MAX_REMEMBERED = 1 << 18
"""Remembered stretches, and words, of one process: about 60 MB each."""
_MAX_REMEMBERED_CHARACTERS = 100
"""Longer stretches (text without spaces) rarely come again."""

# Frequent marks: each is a word of its own for BERT, and no mark that combines, so spaces next to it change no token.
_FREQUENT_MARKS = tuple(
    (mark, mark.join(spaces))
    for mark, spaces in (
        *((mark, (" ", "")) for mark in ",.)"),
        ("(", ("", " ")),
        *((mark, (" ", " ")) for mark in "\"'-;:"),
    )
)
# In printable ASCII everything but letters and digits is punctuation for BERT.
_find_ascii_words = re.compile(r"[A-Za-z0-9]+|[^ ]").findall

# Byte-level BPE (GPT-2's pattern) cuts between a letter or digit and a mark, unless it is an apostrophe, in ASCII.
_LETTER, _OTHER, _CUT = 1, 2, "\x02"
_GROUPS = np.array(
    [_LETTER * chr(code).isalnum() + _OTHER * (chr(code) in string.punctuation.replace("'", "")) for code in range(128)]
    + [8] * 128,
    dtype=np.uint8,
)


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
            if text.isalnum():
                return [text.lower() if self._lowercase else text]
            ascii_words: list[str] = _find_ascii_words(text.lower() if self._lowercase else text)
            return ascii_words
        return self._words(self._normalize(text))

    def _words(self, normalized: str) -> list[str]:
        return [word for word, _ in self._pre_tokenize(normalized)]


def spread(texts: Iterable[str], vocabulary: Vocabulary) -> list[str]:
    """Return texts with the same words but fewer distinct stretches: frequent marks have spaces, ASCII is lower-cased.

    A vocabulary of unsplit words, which may have marks, leaves these where they are.

    Example:
        >>> spread(["The (old) U.S., again"], Vocabulary(tokens=(), lowercase=True))
        ['the ( old ) u .s . , again']
    """
    lowercase, marks = vocabulary.lowercase, () if vocabulary.unsplit else _FREQUENT_MARKS
    found = []
    for text in texts:
        if lowercase and text.isascii():
            text = text.lower()
        for mark, with_spaces in marks:
            text = text.replace(mark, with_spaces)
        found.append(text)
    return found


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
        self._stretches: _StretchIds | _LibraryIds
        if tokenizer.is_wordpiece:
            words = _WordIds(tokenizer, self._dtype)
            self._stretches = _StretchIds(tokenizer.vocabulary, words)
            self._tables: tuple[dict[str, bytes], ...] = (self._stretches, words)
        else:
            self._stretches = _LibraryIds(tokenizer, self._dtype)
            self._tables = (self._stretches,)

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
        texts = self._stretches.spread(sentences)
        numbers, stretches = distinct_stretches(" ".join(texts))
        encoded = self._stretches.of(stretches)
        known = np.frombuffer(b"".join(encoded), dtype=self._dtype)
        sizes = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)) // self._dtype.itemsize
        in_stretch = sizes[numbers]
        ends = np.cumsum(in_stretch)
        # Token t of all is token t - s + k of the known ones, where its stretch begins at s here and at k there.
        shifts = (np.cumsum(sizes) - sizes)[numbers] - (ends - in_stretch)
        places = np.repeat(shifts, in_stretch)
        places += np.arange(len(places))
        ids = known[places]
        last = np.cumsum(np.fromiter((text.count(" ") + 1 for text in texts), dtype=np.int64, count=len(texts))) - 1
        return ids, np.diff(ends[last], prepend=0)


class _StretchIds(dict[str, bytes]):
    """Ids of stretches, as bytes; a stretch that is not there is encoded and kept."""

    def __init__(self, vocabulary: Vocabulary, words: _WordIds) -> None:
        super().__init__()
        self.spread = partial(spread, vocabulary=vocabulary)
        self._split = WordSplitter(vocabulary)
        self._ids_of_word = words.__getitem__

    def of(self, stretches: Sequence[str]) -> list[bytes]:
        """Return the ids of stretches."""
        return list(map(self.__getitem__, stretches))

    def __missing__(self, stretch: str) -> bytes:
        ids = b"".join(map(self._ids_of_word, self._split(stretch)))
        if len(stretch) <= _MAX_REMEMBERED_CHARACTERS:
            self[stretch] = ids
        return ids


class _LibraryIds(dict[str, bytes]):
    """Ids of stretches of a tokenizer other than WordPiece, as bytes; new ones are encoded by the library together.

    A space that belongs to a stretch is written as `_SPACE`, and what would look like it as `_ESCAPE`.
    """

    _MARK, _SPACE, _ESCAPE = "\x01", "\x01s", "\x01e"

    def __init__(self, tokenizer: Tokenizer, dtype: np.dtype) -> None:
        super().__init__()
        self._dtype, self._encode = dtype, tokenizer.encode_literally
        content = json.loads(tokenizer.backend.to_str())
        pre_tokenizer = content["pre_tokenizer"] or {}
        self._is_cut = (
            pre_tokenizer.get("type") == "ByteLevel"
            and pre_tokenizer.get("use_regex", True)
            and not pre_tokenizer["add_prefix_space"]
            and not content["normalizer"]
            and all(token["special"] for token in content["added_tokens"])  # others may stand for text with spaces
        )

    def spread(self, texts: Sequence[str]) -> list[str]:
        """Return texts with spaces between their stretches only."""
        lines = "\n".join(texts)
        single = "  " not in lines and " \n" not in f"{lines}\n" and lines.count("\n") == len(texts) - 1
        if self._is_cut and single and lines.replace("\n", "").isprintable():
            symbols = np.frombuffer(lines.encode(), np.uint8)
            groups = _GROUPS[symbols]
            cuts = np.flatnonzero(groups[:-1] + groups[1:] == _LETTER + _OTHER) + 1
            cut = np.insert(symbols, cuts, ord(_CUT)).tobytes().decode()
            return cut.replace(" ", f" {self._SPACE}").replace(_CUT, " ").split("\n")
        if self._is_cut and len(texts) > 1:  # what is harder to tell is looked for in halves
            half = len(texts) // 2
            return [*self.spread(texts[:half]), *self.spread(texts[half:])]
        return [text.replace(self._MARK, self._ESCAPE).replace(" ", self._SPACE) for text in texts]

    def of(self, stretches: Sequence[str]) -> list[bytes]:
        """Return the ids of stretches."""
        new = [stretch for stretch in stretches if stretch not in self]
        texts = [stretch.replace(self._SPACE, " ").replace(self._ESCAPE, self._MARK) for stretch in new]
        self.update(zip(new, (np.array(ids, self._dtype).tobytes() for ids in self._encode(texts)), strict=True))
        encoded = list(map(self.__getitem__, stretches))
        for stretch in new:
            if len(stretch) > _MAX_REMEMBERED_CHARACTERS:
                del self[stretch]
        return encoded


class _WordIds(dict[str, bytes]):
    """Ids of words, as bytes; a word that is not there is split by the library into the longest subwords and kept."""

    def __init__(self, tokenizer: Tokenizer, dtype: np.dtype) -> None:
        super().__init__()
        self._ids = [np.array(index, dtype=dtype).tobytes() for index in range(tokenizer.vocab_size)]
        self._unknown = self._ids[tokenizer.unk_id]
        self._tokenize = tokenizer.backend.model.tokenize

    def __missing__(self, word: str) -> bytes:
        if len(word) > MAX_WORD_CHARACTERS:
            return self._unknown
        self[word] = ids = b"".join([self._ids[token.id] for token in self._tokenize(word)])
        return ids
