"""Articles from the output of WikiExtractor."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from bertline.corpus.document import Dropped, SourceDocument
from bertline.corpus.files import Part
from bertline.corpus.lines import Line, read_lines
from bertline.corpus.reader import FilesReader
from bertline.foundation.errors import DataError

_DOC_OPEN = re.compile(r'<doc (?=[^>]*\bid="(?P<id>[^"]*)")(?:[^>]*\btitle="(?P<title>[^>]*)")?[^>]*>\s*$')
# Tags that WikiExtractor leaves in the text.
_TAG = re.compile(r"</?(?:br|dl|dd|dt|ul|ol|li|ref|dfn|poem|div|span|small|sub|sup|b|i|p|nowiki|onlyinclude)\b[^<>]*>")


@dataclass(frozen=True, kw_only=True, slots=True)
class WikiExtractorReader(FilesReader):
    """WikiExtractor output: `<doc id= url= title=>` ... `</doc>`, with the title as the first line."""

    kind: Literal["wikiextractor"]
    encoding: str
    """Character encoding of the files."""

    def read_part(self, part: Part) -> Iterator[SourceDocument | Dropped]:
        """Read the articles; each is its own group, and each line of it is a paragraph.

        The title, which WikiExtractor repeats as the first line, is left out: it is a heading, not a sentence.
        """
        head: re.Match[str] | None = None
        body: list[Line] = []
        for line in read_lines(part, self.encoding, self.on_undecodable):
            if isinstance(line, Dropped):
                yield line
                continue
            text = line.text.strip()
            if text[:1] == "<" and (opening := _DOC_OPEN.match(text)):
                if head is not None:
                    yield _left_out("unclosed", part, head, body)
                head, body = opening, []
            elif head is None:
                if text:
                    raise DataError(
                        f'{part.path}:{line.number}: text outside of articles, {text[:60]!r}; expected <doc id="…" …>. '
                        "Take the file or the line out, or run WikiExtractor again."
                    )
            elif text == "</doc>":
                yield from _article(part, head, body)
                head = None
            else:
                body.append(line)
        if head is not None:
            yield _left_out("unclosed", part, head, body)


def _left_out(reason: str, part: Part, head: re.Match[str], body: list[Line]) -> Dropped:
    text = next((line.text for line in body if line.undecodable or reason != "undecodable"), head["title"] or "")
    return Dropped(f"documents/{reason}", f"{part.name}:{head['id']}", text)


def _article(part: Part, head: re.Match[str], body: list[Line]) -> Iterator[SourceDocument | Dropped]:
    if any(line.undecodable for line in body):
        yield _left_out("undecodable", part, head, body)
        return
    # Most lines have no tag, which is faster to see than with the pattern.
    texts = (_TAG.sub(" ", line.text) if "<" in line.text else line.text for line in body if line.text.strip())
    paragraphs = list(map(html.unescape, texts))
    if paragraphs and paragraphs[0].strip() == html.unescape(head["title"] or "").strip():
        yield Dropped("paragraphs/title", f"{part.name}:{head['id']}", paragraphs[0])
        del paragraphs[0]
    yield SourceDocument(f"{part.name}:{head['id']}", head["id"], tuple(paragraphs))
