"""Plain text files."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Literal

from bertline.corpus.document import Dropped, SourceDocument
from bertline.corpus.files import Part, line_ranges, lines_before, paragraphs_of
from bertline.corpus.lines import Line, lines_with_text, read_lines
from bertline.corpus.reader import FilesReader
from bertline.foundation.errors import DataError

_MAX_DOCUMENT_CHARACTERS = 200_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class TextReader(FilesReader):
    """Plain text files, `.txt`, also compressed (`.gz`, `.bz2`, `.xz`, `.zst`).

    With `document: file`, the file name is the group for the split; other documents are split by their content.
    """

    kind: Literal["text"]
    document: Literal["file", "blank_line", "line", "regex"]
    """Unit of a document: a whole file, a block between blank lines, a line, or what `document_start` begins."""
    document_start: str | None
    """Regular expression that a line has where a document begins. The match is left out of the text, unless it is a
    lookahead."""
    encoding: str
    """Character encoding of the files."""

    def check(self) -> None:
        if (self.document == "regex") != (self.document_start is not None):
            raise ValueError(
                "document_start says where a document begins with document=regex, and must be null otherwise; found "
                f"document={self.document}, document_start={self.document_start!r}"
            )
        try:
            re.compile(self.document_start or "")
        except re.error as error:
            raise ValueError(f"document_start is not a regular expression ({error}): {self.document_start!r}") from None

    @property
    def endings(self) -> tuple[str, ...]:
        return (".txt",)

    def ranges(self, part: Part, shard_bytes: int) -> list[Part]:
        return line_ranges(part, shard_bytes) if self.document == "line" and self.encoding == "utf-8" else [part]

    def read_part(self, part: Part) -> Iterator[SourceDocument | Dropped]:
        lines = read_lines(part, self.encoding, self.on_undecodable)
        if self.document == "line":
            for line in lines_with_text(part, lines):
                if isinstance(line, Dropped):
                    yield line
                else:
                    yield SourceDocument(f"{part.label}:{line.number}", "", (line.text,))
            return
        for _, block in groupby(self._numbered(lines), itemgetter(0)):
            yield from self._document(part, (line for _, line in block))

    def _numbered(self, lines: Iterable[Line | Dropped]) -> Iterator[tuple[int, Line | Dropped]]:
        """Yield each line with the number of the block that it is of."""
        block, was_blank, begins = 0, True, re.compile(self.document_start or "")
        for line in lines:
            if isinstance(line, Line):
                is_blank = not line.text.strip()
                if self.document == "regex":
                    block += begins.search(line.text) is not None
                elif self.document == "blank_line":
                    block += is_blank != was_blank
                was_blank = is_blank
            yield block, line

    def _document(self, part: Part, lines: Iterable[Line | Dropped]) -> Iterator[SourceDocument | Dropped]:
        """Make one document of its lines, if they are text."""
        begins = re.compile(self.document_start) if self.document_start is not None else None
        texts: list[str] = []
        first: int | None = None
        characters = 0
        undecodable: Line | None = None
        for line in lines:
            if isinstance(line, Dropped):
                yield line
                continue
            text = line.text
            if begins is not None and (found := begins.search(text)):
                text = text[: found.start()] + text[found.end() :]
            if first is None and text.strip():
                first = line.number
            characters += len(text)
            if characters > _MAX_DOCUMENT_CHARACTERS:
                raise DataError(
                    f"{part.path}:{lines_before(part) + (first or line.number)}: a document of over "
                    f"{_MAX_DOCUMENT_CHARACTERS:,} characters. Set corpus.document=blank_line, line or regex."
                )
            if line.undecodable and undecodable is None:
                undecodable = line
            texts.append(text)
        if undecodable is not None:
            yield Dropped("documents/undecodable", f"{part.label}:{undecodable.number}", undecodable.text)
        elif paragraphs := tuple(paragraphs_of(texts)):
            name, group = (part.name, part.name) if self.document == "file" else (f"{part.label}:{first}", "")
            yield SourceDocument(name, group, paragraphs)
