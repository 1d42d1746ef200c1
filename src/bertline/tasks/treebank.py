"""Parsed sentences of a treebank in CoNLL-U. Pretraining reads one, so this module knows no tables and no scores."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from bertline.corpus.lines import numbered_lines
from bertline.foundation.errors import DataError

CONLLU_WIDTH, CONLLU_WORD = 10, 1


@dataclass(frozen=True, slots=True)
class ParsedSentence:
    """One sentence of a treebank."""

    document: str
    words: tuple[str, ...]
    heads: tuple[int, ...]
    """Place of each word's head, from 1; 0 for the root."""
    relations: tuple[str, ...]
    """With subtypes: `nmod:poss`."""


def read_treebank(path: Path) -> list[ParsedSentence]:
    """Read words, heads and relations of a CoNLL-U file, plain or gzip, without multiword tokens and empty nodes.

    DataError if the file has no sentence or no relations, or a line is invalid; the message names the line.
    """
    sentences: list[ParsedSentence] = []
    for document, block in sentence_blocks(path, "utf-8", lambda line: line.startswith("#")):
        words: list[tuple[str, int, str]] = []
        last = sum(line.partition("\t")[0].isdecimal() for _, line in block)
        for number, line in block:
            columns, where, place = line.split("\t"), f"{path}:{number}", str(len(words) + 1)
            is_word = columns[0].isdecimal()
            if len(columns) != CONLLU_WIDTH or (is_word and columns[0] != place) or not columns[CONLLU_WORD].strip():
                raise DataError(f"{where}: expected ten columns of word {place}, found {line[:60]!r}.")
            if is_word:
                head, relation = columns[6:8]
                if not head.isdecimal() or int(head) > last or head == place or relation == "_":
                    raise DataError(
                        f"{where}: head and relation are {head!r} and {relation!r}; a parsed treebank has another "
                        f"word, 1 to {last}, or 0 (root)."
                    )
                words.append((columns[CONLLU_WORD], int(head), relation))
        if words:
            sentences.append(ParsedSentence(document or f"{path.name}:{block[0][0]}", *zip(*words, strict=True)))
    if not sentences:
        raise DataError(f"{path} has no words. Give a treebank in the format CoNLL-U.")
    return sentences


def sentence_blocks(
    path: Path, encoding: str, is_comment: Callable[[str], bool]
) -> Iterator[tuple[str | None, list[tuple[int, str]]]]:
    """Yield the document and the numbered lines of each sentence; None before the first mark of a document."""
    document: str | None = None
    block: list[tuple[int, str]] = []
    for number, line in chain(numbered_lines(path, encoding), [(0, "")]):
        comment = not block and is_comment(line)
        is_mark = line.startswith("-DOCSTART-") or (comment and line.startswith("# newdoc"))
        if block and (is_mark or not line.strip()):
            yield document, block
            block = []
        if is_mark:
            document = f"{path.name}:{number}"
        elif line.strip() and not comment:
            block.append((number, line))
