"""Articles from the output of WikiExtractor."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from bertline.corpus.document import SourceDocument
from bertline.corpus.input_files import FileFaults, InputFile, find_files, leave_out
from bertline.corpus.lines import Line, counted, read_lines
from bertline.corpus.reader import CorpusReader, CorpusSettings, SourceSettings
from bertline.foundation.errors import DataError

_DOC_OPEN = re.compile(r'<doc (?=[^>]*\bid="(?P<id>[^"]*)")(?:[^>]*\btitle="(?P<title>[^>]*)")?[^>]*>\s*$')
_DOC_CLOSE = "</doc>"
# Tags that WikiExtractor leaves in the text.
_TAG = re.compile(r"</?(?:br|dl|dd|dt|ul|ol|li|ref|dfn|poem|div|span|small|sub|sup|b|i|p|nowiki|onlyinclude)\b[^<>]*>")


@dataclass(frozen=True, kw_only=True, slots=True)
class WikiExtractorReader(CorpusReader):
    """WikiExtractor output: `<doc id= url= title=>` ... `</doc>`, with the title as the first line."""

    user_data: ClassVar[str | None] = "path"
    kind: Literal["wikiextractor"]
    path: str
    """A file, a folder (searched recursively) or a glob."""
    encoding: str
    """Character encoding of the files."""

    def read(self, dropped: Counter[str]) -> Iterator[SourceDocument]:
        """Read the articles of WikiExtractor files; each article is its own group, and each line of it is a paragraph.

        The title, which WikiExtractor repeats as the first line, is left out: it is a heading, not a sentence. A file
        that does not start with an article is skipped and counted under `files/not_wikiextractor`.

        Raises:
            DataError: There is text between two articles, or (`on_undecodable: fail`) two of a file have one id; the
                message names file and line.
        """
        for file in find_files(self.path, (), dropped):
            lines = read_lines(file, self.encoding, self.on_undecodable, dropped)
            faults = FileFaults(file, self.on_undecodable, dropped)
            yield from _articles(file, counted(lines, file, dropped), faults, dropped)


@dataclass(frozen=True, kw_only=True, slots=True)
class WikiExtractorCorpusConfig(WikiExtractorReader, CorpusSettings):
    """Output of WikiExtractor, as the corpus."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WikiExtractorSource(WikiExtractorReader, SourceSettings):
    """Output of WikiExtractor, as one of several sources."""


def _articles(
    file: InputFile, lines: Iterator[Line], faults: FileFaults, dropped: Counter[str]
) -> Iterator[SourceDocument]:
    head: re.Match[str] | None = None
    body: list[Line] = []
    begun = False
    ids: set[str] = set()
    for line in lines:
        text = line.text.strip()
        if text[:1] == "<" and (opening := _DOC_OPEN.match(text)):
            if head is not None:
                _leave_out("unclosed", file, head, body, dropped)
            head, body, begun = opening, [], True
        elif head is None:
            if text and not begun:
                leave_out(dropped, "files/not_wikiextractor", file.name, text)  # for example, a README or licence
                return
            if text:
                raise DataError(
                    f'{file.path}:{line.number}: text between articles, {text[:60]!r}; expected <doc id="…" …>. '
                    "Run WikiExtractor again for this file, or take the line out."
                )
        elif text == _DOC_CLOSE:
            if head["id"] in ids:
                problem = f"the article that ends in line {line.number} has the id {head['id']!r} of an earlier one"
                faults.count("documents/duplicate_id", problem, "Take one of them out")
            else:
                ids.add(head["id"])
                yield from _article(file, head, body, dropped)
            head = None
        else:
            body.append(line)
    if head is not None:
        _leave_out("unclosed", file, head, body, dropped)


def _leave_out(reason: str, file: InputFile, head: re.Match[str], body: list[Line], dropped: Counter[str]) -> None:
    text = next((line.text for line in body if line.undecodable or reason != "undecodable"), head["title"] or "")
    leave_out(dropped, f"documents/{reason}", f"{file.name}:{head['id']}", text)


def _article(file: InputFile, head: re.Match[str], body: list[Line], dropped: Counter[str]) -> Iterator[SourceDocument]:
    if any(line.undecodable for line in body):
        _leave_out("undecodable", file, head, body, dropped)
        return
    paragraphs = [_without_tags(line.text) for line in body if line.text.strip()]
    if paragraphs and paragraphs[0].strip() == html.unescape(head["title"] or "").strip():
        leave_out(dropped, "paragraphs/title", f"{file.name}:{head['id']}", paragraphs[0])
        del paragraphs[0]
    yield SourceDocument(f"{file.name}:{head['id']}", head["id"], tuple(paragraphs))


def _without_tags(text: str) -> str:
    return html.unescape(_TAG.sub(" ", text) if "<" in text else text)
