"""Encoding of many sentences, faster than by the tokenizers library, to the same ids.

WordPiece is nanotoken's. Byte-level BPE looks across a space only where white space stands next to it, and takes the
space into the word behind it: a stretch that begins with its space is encoded once and remembered. Of any other
tokenizer nothing is assumed: a text is one stretch.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from nanotoken import WordPieceTokenizer

from bertline.foundation.stretches import distinct_stretches
from bertline.tokenization.tokenizer import Tokenizer

_MAX_REMEMBERED = 1 << 18
"""Remembered stretches of one process, about 60 MB; when there are more, all are forgotten."""
_MAX_REMEMBERED_CHARACTERS = 100
"""Longer stretches (text without spaces) rarely come again."""

# Byte-level BPE (GPT-2's pattern) cuts between a letter or digit and a mark, unless it is an apostrophe, in ASCII.
_LETTER, _OTHER, _CUT = 1, 2, "\x02"
_GROUPS = np.array(
    [_LETTER * chr(code).isalnum() + _OTHER * (chr(code) in string.punctuation.replace("'", "")) for code in range(128)]
    + [8] * 128,
    dtype=np.uint8,
)


Encoded = tuple[npt.NDArray[np.unsignedinteger], npt.NDArray[np.int64]]
"""[tokens] the ids of all sentences, concatenated, and [sentences] the number of tokens of each."""


def sentence_encoder(tokenizer: Tokenizer, dtype: npt.DTypeLike) -> Callable[[Sequence[str]], Encoded]:
    """Return a function that encodes sentences to the ids of `Tokenizer.encode_literally`, many times as fast.

    Args:
        tokenizer: The tokenizer.
        dtype: Unsigned dtype that holds every token id.

    Example:
        >>> from bertline.tokenization.vocabulary import Vocabulary
        >>> vocabulary = Vocabulary(tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"), lowercase=True)
        >>> ids, lengths = sentence_encoder(Tokenizer(vocabulary), "uint16")(["A b", "", "b"])
        >>> ids.tolist(), lengths.tolist()
        ([5, 6, 6], [2, 0, 1])
    """
    if not tokenizer.is_wordpiece:
        return _StretchEncoder(tokenizer, np.dtype(dtype))
    content = json.loads(tokenizer.backend.to_str())
    # To a tokenizer that does not know the special tokens they are ordinary text.
    content["added_tokens"] = [token for token in content["added_tokens"] if not token["special"]]
    wordpiece = WordPieceTokenizer.from_json(json.dumps(content | {"post_processor": None}))

    def encode(sentences: Sequence[str]) -> Encoded:
        # In this thread: engines have a process for each core.
        ids, bounds = wordpiece.encode_batch(sentences, add_special_tokens=False, parallel=False)
        return ids.astype(dtype), np.diff(bounds)

    return encode


class _StretchEncoder:
    """Encodes sentences by any tokenizer, and remembers what each stretch became; new ones are encoded together.

    A space that belongs to a stretch is written as `_SPACE`, and what would look like it as `_ESCAPE`.
    """

    _MARK, _SPACE, _ESCAPE = "\x01", "\x01s", "\x01e"

    def __init__(self, tokenizer: Tokenizer, dtype: np.dtype[Any]) -> None:
        self._dtype, self._encode = dtype, tokenizer.encode_literally
        self._remembered: dict[str, bytes] = {}
        content = json.loads(tokenizer.backend.to_str())
        pre_tokenizer = content["pre_tokenizer"] or {}
        self._is_cut = (
            pre_tokenizer.get("type") == "ByteLevel"
            and pre_tokenizer.get("use_regex", True)
            and not pre_tokenizer["add_prefix_space"]
            and not content["normalizer"]
            and all(token["special"] for token in content["added_tokens"])  # others may stand for text with spaces
        )

    def __call__(self, sentences: Sequence[str]) -> Encoded:
        if len(self._remembered) > _MAX_REMEMBERED:
            self._remembered.clear()
        texts = self._spread(sentences)
        numbers, stretches = distinct_stretches(" ".join(texts))
        encoded = self._ids_of(stretches)
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

    def _spread(self, texts: Sequence[str]) -> list[str]:
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
            return [*self._spread(texts[:half]), *self._spread(texts[half:])]
        return [text.replace(self._MARK, self._ESCAPE).replace(" ", self._SPACE) for text in texts]

    def _ids_of(self, stretches: Sequence[str]) -> list[bytes]:
        new = [stretch for stretch in stretches if stretch not in self._remembered]
        texts = [stretch.replace(self._SPACE, " ").replace(self._ESCAPE, self._MARK) for stretch in new]
        ids = (np.array(ids, self._dtype).tobytes() for ids in self._encode(texts))
        self._remembered.update(zip(new, ids, strict=True))
        encoded = [self._remembered[stretch] for stretch in stretches]
        for stretch in new:
            if len(stretch) > _MAX_REMEMBERED_CHARACTERS:
                del self._remembered[stretch]
        return encoded
