"""Plain text files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, Literal, assert_never

from bertline.corpus.document import SourceDocument
from bertline.corpus.input_files import InputFile, find_files, leave_out, paragraphs_of
from bertline.corpus.lines import Line, counted, peeked, read_lines, reader_of_markup
from bertline.corpus.reader import CorpusReader, CorpusSettings, SourceSettings
from bertline.foundation.errors import DataError
from bertline.foundation.progress import of_kind, warn

_MAX_DOCUMENT_CHARACTERS = 200_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class TextReader(CorpusReader):
    """Plain text files, `.txt`, also compressed (`.gz`, `.bz2`, `.xz`, `.zst`)."""

    user_data: ClassVar[str | None] = "path"
    kind: Literal["text"]
    path: str
    """A file, a folder (searched recursively) or a glob."""
    document: Literal["file", "blank_line", "line", "regex"]
    """Unit of a document: a whole file, a block between blank lines, a line, or what `document_start` begins."""
    document_start: str | None
    """Regular expression that a line has where a document begins. The match is left out of the text, unless it is a
    lookahead."""
    encoding: str
    """Character encoding of the files; `auto` detects that of each file."""
    on_markup: Literal["fail", "skip", "keep"]
    """How to handle a file that is markup (XML, HTML): fail with its name, skip and count it, or keep it as text."""

    def check(self) -> None:
        """Raise ValueError for a beginning of documents that is not one."""
        if (self.document == "regex") != (self.document_start is not None):
            raise ValueError(
                "document_start says where a document begins with document=regex, and must be null otherwise; found "
                f"document={self.document}, document_start={self.document_start!r}"
            )
        try:
            re.compile(self.document_start or "")
        except re.error as error:
            raise ValueError(f"document_start is not a regular expression ({error}): {self.document_start!r}") from None

    def read(self, dropped: Counter[str]) -> Iterator[SourceDocument]:
        """Read plain text files; a document is a file, a block between blank lines, a line, or begins at a match.

        With `document: file`, the file name is the group for the split; other documents are split by their content.

        Raises:
            DataError: No file was found; or (`on_undecodable: fail`) a document is too long or a line is not text; or
                (`on_markup: fail`) a file is markup.
        """
        for file in find_files(self.path, (".txt",), dropped):
            lines = counted(read_lines(file, self.encoding, self.on_undecodable, dropped), file, dropped)
            if self.on_markup != "keep":
                start, lines = peeked(lines)
                if (reader := reader_of_markup(start)) is not None:
                    self._refuse_markup(file, reader, start, dropped)
                    continue
            yield from self._documents(file, lines, dropped)

    def _documents(self, file: InputFile, lines: Iterator[Line], dropped: Counter[str]) -> Iterator[SourceDocument]:
        match self.document:
            case "line":
                for line in lines:
                    if line.undecodable:
                        leave_out(dropped, "documents/undecodable", f"{file.name}:{line.number}", line.text)
                    elif line.text.strip():
                        yield SourceDocument(f"{file.name}:{line.number}", "", (line.text,))
            case "file":
                yield from self._document(file, lines, dropped)
            case "blank_line":
                for has_text, block in groupby(lines, key=lambda line: bool(line.text.strip())):
                    if has_text:
                        yield from self._document(file, block, dropped)
            case "regex":
                for _, part in groupby(_begun(lines, re.compile(self.document_start or "")), key=lambda item: item[0]):
                    yield from self._document(file, (line for _, line in part), dropped)
            case _:
                assert_never(self.document)

    def _document(self, file: InputFile, lines: Iterable[Line], dropped: Counter[str]) -> Iterator[SourceDocument]:
        """Make one document of its lines, if they are text."""
        texts: list[str] = []
        first: int | None = None
        characters = 0
        reason = None
        shown = place = ""
        for line in lines:
            if first is None and line.text.strip():
                first = line.number
            characters += len(line.text)
            if line.undecodable:
                reason = "undecodable"
            elif characters > _MAX_DOCUMENT_CHARACTERS:
                reason = reason or self._too_long(file, first)
            if reason is None:
                texts.append(line.text)
            elif not place:
                place, shown = f"{file.name}:{line.number}", line.text
                texts.clear()
        if reason is not None:
            leave_out(dropped, f"documents/{reason}", place, shown)
        elif paragraphs := tuple(paragraphs_of(texts)):
            whole = self.document == "file"
            name = file.name if whole else f"{file.name}:{first}"
            yield SourceDocument(name, file.name if whole else "", paragraphs)

    def _too_long(self, file: InputFile, first: int | None) -> str:
        if self.on_undecodable == "fail":
            raise DataError(
                f"{file.path}:{first}: over {_MAX_DOCUMENT_CHARACTERS:,} characters are too long for one document. "
                "Set corpus.document=blank_line, line or regex, or corpus.on_undecodable=skip to leave it out, counted."
            )
        return "too_long"

    def _refuse_markup(self, file: InputFile, reader: str, start: str, dropped: Counter[str]) -> None:
        if self.on_markup == "fail":
            raise DataError(
                f"{file.path}: markup, not plain text; its tags would become words. To read it, use {reader}. Or set "
                "corpus.on_markup=skip to leave such files out, counted, or keep to take the tags as text."
            )
        leave_out(dropped, "files/markup", file.name, start)
        fate = f"left out, counted under files/markup. To read it: {reader}"
        warn(f"{file.path}: markup, not plain text; {fate}", extra=of_kind("files/markup"))


@dataclass(frozen=True, kw_only=True, slots=True)
class TextCorpusConfig(TextReader, CorpusSettings):
    """Plain text files, as the corpus."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextSource(TextReader, SourceSettings):
    """Plain text files, as one of several sources."""


def _begun(lines: Iterator[Line], beginning: re.Pattern[str]) -> Iterator[tuple[int, Line]]:
    """Number the documents that begin at lines with a match, and take the match out."""
    document = 0
    for line in lines:
        if found := beginning.search(line.text):
            document += 1
            line = Line(line.number, line.text[: found.start()] + line.text[found.end() :], line.undecodable)
        yield document, line
