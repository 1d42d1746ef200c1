"""Plain text files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, Literal

from bertline.corpus.document import SourceDocument
from bertline.corpus.input_files import InputFile, Line, counted, find_files, paragraphs_of, read_lines
from bertline.corpus.reader import CorpusReader
from bertline.foundation.errors import DataError

_MAX_DOCUMENT_CHARACTERS = 200_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class TextCorpusConfig(CorpusReader):
    """Plain text files, `.txt` or `.txt.gz`."""

    user_data: ClassVar[str | None] = "path"
    kind: Literal["text"]
    path: str
    """A file, a folder (searched recursively) or a glob."""
    document: Literal["file", "blank_line", "line"]
    """Unit of a document: a whole file, a block between blank lines, or a line."""
    encoding: str
    """Character encoding of the files."""

    def read(self, dropped: Counter[str]) -> Iterator[SourceDocument]:
        """Read `.txt` and `.txt.gz` files; a document is a file, a block between blank lines, or a line.

        With `document: file`, the file name is the group for the split; blocks and lines are split by their content.

        Raises:
            DataError: No file was found, a document is too long, or (`on_undecodable: fail`) a line cannot be decoded.
        """
        for file in find_files(self.path, (".txt",), dropped):
            lines = counted(read_lines(file, self.encoding, self.on_undecodable, dropped), file, dropped)
            if self.document == "file":
                yield from _whole_file(file, lines, dropped)
            elif self.document == "blank_line":
                yield from _blocks(file, lines, dropped)
            else:
                for line in lines:
                    if line.undecodable:
                        dropped["documents/undecodable"] += 1
                    elif line.text.strip():
                        yield SourceDocument(f"{file.name}:{line.number}", "", (line.text,))


def _whole_file(file: InputFile, lines: Iterator[Line], dropped: Counter[str]) -> Iterator[SourceDocument]:
    texts: list[str] = []
    characters = 0
    undecodable = False
    for line in lines:
        undecodable = undecodable or line.undecodable
        texts.append(line.text)
        characters += len(line.text)
        if characters > _MAX_DOCUMENT_CHARACTERS:
            raise DataError(
                f"{file.path}: over {_MAX_DOCUMENT_CHARACTERS:,} characters are too long for one document. "
                "Set corpus.document=blank_line or line."
            )
    if undecodable:
        dropped["documents/undecodable"] += 1
    elif paragraphs := tuple(paragraphs_of(texts)):
        yield SourceDocument(file.name, file.name, paragraphs)


def _blocks(file: InputFile, lines: Iterator[Line], dropped: Counter[str]) -> Iterator[SourceDocument]:
    for has_text, block in groupby(lines, key=lambda line: bool(line.text.strip())):
        filled = list(block) if has_text else []
        if any(line.undecodable for line in filled):
            dropped["documents/undecodable"] += 1
        elif filled:
            paragraphs = tuple(paragraphs_of(line.text for line in filled))
            yield SourceDocument(f"{file.name}:{filled[0].number}", "", paragraphs)
