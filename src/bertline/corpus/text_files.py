"""Documents from plain text files and from the output of WikiExtractor."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from bertline.corpus.config import TextCorpusConfig, WikiExtractorCorpusConfig
from bertline.corpus.document import SourceDocument
from bertline.corpus.input_files import InputFile, Line, find_files, read_lines
from bertline.foundation.errors import DataError

# A line up to this length may be wrapped and is joined with the next one; a longer line ends a paragraph.
_MAX_WRAPPED_CHARACTERS = 100
_MAX_DOCUMENT_CHARACTERS = 200_000_000
_DOC_OPEN = re.compile(r'<doc (?=[^>]*\bid="(?P<id>[^"]*)")(?:[^>]*\btitle="(?P<title>[^>]*)")?[^>]*>\s*$')
_DOC_CLOSE = "</doc>"
# Tags that WikiExtractor leaves in the text.
_TAG = re.compile(r"</?(?:br|dl|dd|dt|ul|ol|li|ref|dfn|poem|div|span|small|sub|sup|b|i|p|nowiki|onlyinclude)\b[^<>]*>")


def read_text_files(config: TextCorpusConfig, dropped: Counter[str]) -> Iterator[SourceDocument]:
    """Read `.txt` and `.txt.gz` files; a document is a file, a block between blank lines, or a line.

    With `document: file`, the file name is the group for the split; blocks and lines are split by their content.

    Raises:
        DataError: No file was found, a document is too long, or (`on_undecodable: fail`) a line cannot be decoded.
    """
    for file in find_files(config.path, (".txt",), dropped):
        lines = _counted(read_lines(file, config.encoding, config.on_undecodable, dropped), file, dropped)
        if config.document == "file":
            yield from _whole_file(file, lines, dropped)
        elif config.document == "blank_line":
            yield from _blocks(file, lines, dropped)
        else:
            for line in lines:
                if line.undecodable:
                    dropped["documents/undecodable"] += 1
                elif line.text.strip():
                    yield SourceDocument(f"{file.name}:{line.number}", "", (line.text,))


def read_wikiextractor(config: WikiExtractorCorpusConfig, dropped: Counter[str]) -> Iterator[SourceDocument]:
    """Read the articles of WikiExtractor files; each article is its own group, and each line of it is a paragraph.

    The title, which WikiExtractor repeats as the first line, is left out: it is a heading, not a sentence. A file that
    does not start with an article is skipped and counted under `files/not_wikiextractor`.

    Raises:
        DataError: There is text between two articles; the message names file and line.
    """
    for file in find_files(config.path, (), dropped):
        lines = read_lines(file, config.encoding, config.on_undecodable, dropped)
        yield from _articles(file, _counted(lines, file, dropped), dropped)


def paragraphs_of(lines: Iterable[str]) -> Iterator[str]:
    """Join wrapped lines to paragraphs; a blank line, or a line too long to be wrapped, ends a paragraph.

    Example:
        >>> list(paragraphs_of(["It was", "late.", "", "x" * 200, "Next."]))[0]
        'It was late.'
        >>> len(list(paragraphs_of(["It was", "late.", "", "x" * 200, "Next."])))
        3
    """
    waiting: list[str] = []
    for line in lines:
        text = line.strip()
        if text:
            waiting.append(text)
        if waiting and (not text or len(text) > _MAX_WRAPPED_CHARACTERS):
            yield " ".join(waiting)
            waiting = []
    if waiting:
        yield " ".join(waiting)


def _counted(lines: Iterator[Line], file: InputFile, dropped: Counter[str]) -> Iterator[Line]:
    blank = True
    for line in lines:
        blank = blank and not line.text.strip()
        yield line
    if blank:
        dropped["files/empty"] += 1


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
    block: list[Line] = []
    for line in lines:
        if line.text.strip():
            block.append(line)
        elif block:
            yield from _block(file, block, dropped)
            block = []
    if block:
        yield from _block(file, block, dropped)


def _block(file: InputFile, block: list[Line], dropped: Counter[str]) -> Iterator[SourceDocument]:
    if any(line.undecodable for line in block):
        dropped["documents/undecodable"] += 1
    else:
        yield SourceDocument(f"{file.name}:{block[0].number}", "", tuple(paragraphs_of(line.text for line in block)))


def _articles(file: InputFile, lines: Iterator[Line], dropped: Counter[str]) -> Iterator[SourceDocument]:
    head: re.Match[str] | None = None
    body: list[Line] = []
    begun = False
    for line in lines:
        text = line.text.strip()
        if opening := _DOC_OPEN.match(text):
            if head is not None:
                dropped["documents/unclosed"] += 1
            head, body, begun = opening, [], True
        elif head is None:
            if text and not begun:
                dropped["files/not_wikiextractor"] += 1  # for example, a README or licence
                return
            if text:
                raise DataError(
                    f'{file.path}:{line.number}: text between articles, {text[:60]!r}; expected <doc id="…" …>. '
                    "Run WikiExtractor again for this file, or take the line out."
                )
        elif text == _DOC_CLOSE:
            yield from _article(file, head, body, dropped)
            head = None
        else:
            body.append(line)
    if head is not None:
        dropped["documents/unclosed"] += 1


def _article(file: InputFile, head: re.Match[str], body: list[Line], dropped: Counter[str]) -> Iterator[SourceDocument]:
    if any(line.undecodable for line in body):
        dropped["documents/undecodable"] += 1
        return
    paragraphs = [html.unescape(_TAG.sub(" ", line.text)) for line in body if line.text.strip()]
    if paragraphs and paragraphs[0].strip() == html.unescape(head["title"] or "").strip():
        dropped["paragraphs/title"] += 1
        del paragraphs[0]
    yield SourceDocument(f"{file.name}:{head['id']}", head["id"], tuple(paragraphs))
