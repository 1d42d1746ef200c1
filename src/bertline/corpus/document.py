"""Document types, before and after sentence splitting, and what the ids of a corpus of several sources begin with."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

# Control characters, zero-width and direction marks, soft hyphens (they would split words into
# unknown tokens), lone surrogates (not text, and not encodable) and the replacement character.
_UNWANTED = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ud800-\udfff\ufeff\ufffd]"
)
_KEY_BYTES = 12  # the probability of any collision among 10**9 texts is below 10**-10
Split = Literal["train", "validation"]


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A document as read from its source, before cleaning, de-duplication and sentence splitting."""

    id: str
    """Location in the source, such as `torch.nn.functional`, `shard_00.txt.gz:12` or `rows.jsonl:4`."""
    group: str
    """Documents of one group are in the same split; if empty, the document is its own group."""
    paragraphs: tuple[str, ...]
    """Blocks of text in reading order, with the line breaks of the source; a sentence never crosses to the next."""
    split: Split | None = None
    """Split, if the source determines it; None selects it by a hash of the group."""
    language: str | None = None
    """Language, if the source says it of each document."""


class Dropped(NamedTuple):
    """Something that a reader or a step leaves out (or changes), for the counts and samples of the stage."""

    reason: str
    """As it is counted, such as `documents/too_short`."""
    where: str = ""
    """Id, or NAME:LINE."""
    text: str = ""
    """What was left out, cut to an excerpt by whoever shows it."""
    count: int = 1  # type: ignore[assignment]  # tuples have a method of this name
    note: str = ""
    fault: tuple[str, str] | None = None
    """Place and problem, and what to do, where it is not left out but ends the stage (`on_undecodable: fail`)."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document of the corpus."""

    id: str
    group: str
    sentences: tuple[str, ...]
    """Sentences in reading order, none empty, each on one line."""


def label_of(document_id: str) -> str:
    """Return source and language of a document.

    >>> label_of("wiki[de]/a.txt:3"), label_of("novels/Emma.txt")
    ('wiki[de]', 'novels')
    """
    return document_id.partition("/")[0]


def source_of(document_id: str) -> str:
    """Return the name of the source of a document.

    >>> source_of("wiki[de]/a.txt:3")
    'wiki'
    """
    return label_of(document_id).partition("[")[0]


def copy_id(document_id: str, number: int) -> str:
    """Return the id of a copy of a document, which comes right behind it."""
    return f"{document_id}#{number}"


def are_copies(document_ids: Iterable[str]) -> Iterator[bool]:
    """Yield of each document, in their order, whether it is a copy of an earlier one, by the ids of `copy_id`.

    >>> list(are_copies(["a", "a#2", "a#3", "b#2", "b", "b#2"]))
    [False, True, True, False, False, True]
    """
    first, number = "", 1
    for each in document_ids:
        is_copy = each == copy_id(first, number + 1)
        first, number = (first, number + 1) if is_copy else (each, 1)
        yield is_copy


def language_of(label: str) -> str | None:
    """Return the language of a label.

    >>> language_of("wiki[de]"), language_of("novels")
    ('de', None)
    """
    return label.partition("[")[2].removesuffix("]") or None


def distinct_stretches(text: str, *, errors: str = "strict") -> tuple[npt.NDArray[np.int32], list[str]]:
    """Return [stretches] the number of each stretch between two spaces of a text, and the distinct stretches.

    This is several times as fast as with a dictionary of Python.

    >>> numbers, stretches = distinct_stretches("to be or not to be")
    >>> numbers.tolist(), stretches
    ([0, 1, 2, 3, 0, 1], ['to', 'be', 'or', 'not'])
    """
    import pyarrow as pa  # a bare GPU image lacks it
    import pyarrow.compute as pc

    content = text.encode(errors=errors)
    offsets = np.array([0, len(content)], dtype=np.int64)
    whole = pa.LargeStringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(content))
    words = pc.split_pattern(whole, pattern=" ").values.dictionary_encode()
    return words.indices.to_numpy(), words.dictionary.to_pylist()


def has_single_spaces(text: str) -> bool:
    """Return whether a text is printable, with no white space but single spaces between its stretches."""
    # White space other than the space is not printable.
    return "  " not in text and text[:1] != " " and text[-1:] != " " and text.isprintable()


def with_single_spaces(text: str) -> str:
    r"""Return a text with single spaces for all white space between its stretches, and none around it.

    >>> with_single_spaces(" to be\n or\u00a0not")
    'to be or not'
    """
    # To see that nothing is to do is faster than to do it.
    return text if has_single_spaces(text) else " ".join(text.split())


def clean(text: str) -> str:
    r"""Clean one block of text: no control characters, single spaces, one line, Unicode NFC.

    >>> clean("Cafe\u0301\x00  au\n lait ")
    'Café au lait'
    """
    if not has_single_spaces(text):
        text = " ".join(text.split())
        if not text.isprintable():
            text = " ".join(_UNWANTED.sub("", text).split())
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def duplicate_key(text: str) -> bytes:
    """Return a 12-byte hash that is equal for texts that differ only in case and white space."""
    return key_of_folded(" ".join(text.casefold().split()))


def key_of_folded(text: str) -> bytes:
    """Return the key of a text without capitals, in single spaces."""
    return hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES).digest()
