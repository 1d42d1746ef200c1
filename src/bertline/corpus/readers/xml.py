"""XML files, such as TEI, read as a stream by element paths; entity declarations are refused."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Literal
from xml.parsers import expat

from bertline.corpus.document import Dropped, SourceDocument
from bertline.corpus.files import TORN, Part, fault, opened, torn
from bertline.corpus.reader import FilesReader

_CHUNK_BYTES = 1 << 16
_MAX_DOCUMENT_CHARACTERS = 200_000_000


class RefusedXmlError(ValueError):
    """XML that is well-formed and not read: it declares entities, or a document is too long."""


XmlDocument = tuple[str, list[str]]
"""Name of a document (its attribute `xml:id` or `id`, else the line of the file where it begins, from 1), and its
paragraphs, with the line breaks of the file, which `corpus/sentences=lines` splits at."""


class _Builder:
    """Handlers of the parser's events, which hold one document at a time.

    Entities of the file's own (`<!ENTITY ...>`) are refused, since few of them can stand for any amount of text or for
    other files; those that HTML names, in files with a DTD that is not read, become their characters.
    """

    def __init__(self, paths: XmlReader) -> None:
        self.finished: list[XmlDocument] = []
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.SkippedEntityHandler = self._skipped_entity
        self.parser.EntityDeclHandler = self._entity
        self._paths = paths
        self._stack: list[str] = []
        # How many of the open elements have each role.
        self._in_paragraph = self._in_ignored = 0
        self._document: XmlDocument | None = None
        self._document_depth = 0
        self._characters = 0
        self._buffer: list[str] = []

    def documents(self, handle: IO[bytes]) -> Iterator[XmlDocument]:
        """Read the documents of a file; `ExpatError` and `RefusedXmlError` say why there is no next one."""
        ended = False
        while not ended:
            chunk = handle.read(_CHUNK_BYTES)
            ended = not chunk
            self.parser.Parse(chunk, ended)
            yield from self.finished
            self.finished.clear()

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._stack.append(name.rpartition(":")[2])
        depth = len(self._stack)
        wanted = self._paths.document
        if self._document is None and (self._ends_with(wanted) if wanted is not None else depth == 1):
            line = str(self.parser.CurrentLineNumber)
            self._document = attributes.get("xml:id", attributes.get("id", line)), []
            self._document_depth = depth
            self._characters = 0
        self._in_ignored += any(map(self._ends_with, self._paths.ignored))
        if self._in_ignored:
            return
        if any(map(self._ends_with, self._paths.paragraphs)):
            self._flush()
            self._in_paragraph += 1
        if any(map(self._ends_with, self._paths.spaces)) and attributes.get("break") != "no":
            self._buffer.append(" ")

    def _end(self, name: str) -> None:
        if not self._in_ignored and any(map(self._ends_with, self._paths.paragraphs)):
            self._flush()
            self._in_paragraph -= 1
        self._in_ignored -= any(map(self._ends_with, self._paths.ignored))
        if self._document is not None and len(self._stack) == self._document_depth:
            self.finished.append(self._document)
            self._document = None
        self._stack.pop()

    def _text(self, text: str) -> None:
        if self._document is None or self._in_ignored or not self._in_paragraph:
            return
        self._buffer.append(text)
        self._characters += len(text)
        if self._characters > _MAX_DOCUMENT_CHARACTERS:
            raise RefusedXmlError(
                f"over {_MAX_DOCUMENT_CHARACTERS:,} characters in one document, in line {self.parser.CurrentLineNumber}"
            )

    def _skipped_entity(self, name: str, is_parameter: bool) -> None:
        if not is_parameter:
            self._text(html.unescape(f"&{name};"))

    def _entity(self, name: str, *_: object) -> None:
        raise RefusedXmlError(f"declares the entity {name!r}, in line {self.parser.CurrentLineNumber}")

    def _flush(self) -> None:
        lines = (" ".join(line.split()) for line in "".join(self._buffer).splitlines())
        paragraph = "\n".join(filter(None, lines))
        self._buffer.clear()
        if paragraph and self._document is not None:
            self._document[1].append(paragraph)

    def _ends_with(self, path: str) -> bool:
        name, *outer = reversed(path.split("/"))
        if self._stack[-1] != name:
            return False
        return not outer or self._stack[-1 - len(outer) : -1] == outer[::-1]


@dataclass(frozen=True, kw_only=True, slots=True)
class XmlReader(FilesReader):
    """XML files, `.xml` or `.tei`, also compressed (`.gz`, `.bz2`, `.xz`, `.zst`).

    A document without an `xml:id` or `id` is named by its line. With `document: null`, the file name is the group for
    the split; other documents are split by their content.
    """

    kind: Literal["xml"]
    document: str | None
    """Path of the elements that are documents, such as `TEI` or `corpus/article`: local names that end an element's
    path. None: each file is a document."""
    paragraphs: tuple[str, ...]
    """Paths of the elements whose text is a paragraph."""
    ignored: tuple[str, ...]
    """Paths of elements that are left out with all that is inside, such as notes."""
    spaces: tuple[str, ...]
    """Paths of elements that begin with a space, such as line breaks; TEI's attribute `break="no"` takes it away."""

    def check(self) -> None:
        if not self.paragraphs:
            raise ValueError("paragraphs must name the elements that hold text, such as [p]; found none")

    @property
    def endings(self) -> tuple[str, ...]:
        return (".xml", ".tei")

    def read_part(self, part: Part) -> Iterator[SourceDocument | Dropped]:
        """Read the documents of a file up to its end or its first fault."""
        policy, has_paragraphs = self.on_undecodable, False
        try:
            with opened(part) as handle:
                for name, paragraphs in _Builder(self).documents(handle):
                    has_paragraphs = has_paragraphs or bool(paragraphs)
                    key, group = (part.name, part.name) if self.document is None else (f"{part.name}:{name}", "")
                    yield SourceDocument(key, group, tuple(paragraphs))
        except expat.ExpatError as error:
            yield fault(part, policy, "files/not_xml", f"not well-formed XML ({error})", "Mend it")
        except RefusedXmlError as error:
            yield fault(part, policy, "files/refused", str(error), "Take such parts out; declare no entities")
        except (LookupError, UnicodeError) as error:
            problem = f"an encoding that is not read ({error})"
            yield fault(part, policy, "files/undecodable", problem, "Convert it to UTF-8")
        except (*TORN, OSError) as error:
            yield torn(part, policy, error)
        if not has_paragraphs:
            asked = f"corpus.document={self.document}, corpus.paragraphs=[{','.join(self.paragraphs)}]"
            yield Dropped("files/without_paragraphs", part.name, note=f"no paragraph found ({asked})")
