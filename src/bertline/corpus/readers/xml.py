"""XML files, such as TEI."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal
from xml.parsers import expat

from bertline.corpus.compression import TORN, compression_of, is_torn, open_decompressed
from bertline.corpus.document import SourceDocument
from bertline.corpus.faults import FileFaults
from bertline.corpus.input_files import InputFile, find_files
from bertline.corpus.left_out import leave_out
from bertline.corpus.reader import CorpusReader, CorpusSettings, SourceSettings
from bertline.corpus.xml_text import ElementPaths, RefusedXmlError, XmlDocument, xml_documents
from bertline.foundation.errors import DataError
from bertline.foundation.progress import of_kind, warn

_SHOWN_ELEMENTS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class XmlReader(CorpusReader):
    """XML files, `.xml` or `.tei`, also compressed (`.gz`, `.bz2`, `.xz`, `.zst`)."""

    user_data: ClassVar[str | None] = "path"
    kind: Literal["xml"]
    path: str
    """A file, a folder (searched recursively) or a glob."""
    document: str | None
    """Path of the elements that are documents, such as `TEI` or `corpus/article`: local names that end an element's
    path. None: each file is a document."""
    paragraphs: tuple[str, ...]
    """Paths of the elements whose text is a paragraph."""
    ignored: tuple[str, ...]
    """Paths of elements that are left out with all that is inside, such as notes."""
    spaces: tuple[str, ...]
    """Paths of elements that begin with a space, such as line breaks."""

    def check(self) -> None:
        """Raise ValueError where no element holds text."""
        if not self.paragraphs:
            raise ValueError("paragraphs must name the elements that hold text, such as [p]; found none")

    def read(self, dropped: Counter[str]) -> Iterator[SourceDocument]:
        """Read XML files; a document without an `xml:id` or `id` is named by its line.

        With `document: null`, the file name is the group for the split; other documents are split by their content.

        Raises:
            DataError: No file was found; or (`on_undecodable: fail`) a file is not well-formed, declares entities, is
                nested too deeply or torn, or two documents of a file have one id.
        """
        for file in find_files(self.path, (".xml", ".tei"), dropped):
            outside: Counter[str] = Counter()
            found = 0
            for document in self._documents(file, outside, dropped):
                found += bool(document.paragraphs)
                whole = self.document is None
                name = file.name if whole else f"{file.name}:{document.id or document.line}"
                yield SourceDocument(name, file.name if whole else "", tuple(document.paragraphs))
            if not found:
                elements = ", ".join(f"{name} {count:,}" for name, count in outside.most_common(_SHOWN_ELEMENTS))
                leave_out(dropped, "files/without_paragraphs", file.name, f"elements with text: {elements or 'none'}")
                warn(
                    f"{file.path}: no paragraph found (corpus.document={self.document}, corpus.paragraphs="
                    f"[{','.join(self.paragraphs)}]). Characters by element that are in none: {elements or 'no text'}.",
                    extra=of_kind("files/without_paragraphs"),
                )

    def _documents(self, file: InputFile, outside: Counter[str], dropped: Counter[str]) -> Iterator[XmlDocument]:
        """Read the documents of a file up to its end or its first fault."""
        faults = FileFaults(file, self.on_undecodable, dropped)
        paths = ElementPaths(
            document=self.document, paragraphs=self.paragraphs, ignored=self.ignored, spaces=self.spaces
        )
        ids: set[str] = set()
        line = 1
        fault: tuple[str, str, str] | None = None
        try:
            with open_decompressed(file.path) as handle:
                before = os.fstat(handle.fileno())
                try:
                    for document in xml_documents(handle, paths, outside):
                        line = document.line
                        if document.id is not None and document.id in ids:
                            problem = f"the document of line {line} has the id {document.id!r} of an earlier one"
                            faults.count("documents/duplicate_id", problem, "Take one of them out")
                            continue
                        if document.id is not None:
                            ids.add(document.id)
                        yield document
                except (expat.ExpatError, RefusedXmlError, LookupError, UnicodeError, *TORN, OSError) as error:
                    fault = _fault(error, file)
                changed = faults.is_changed(before, os.fstat(handle.fileno()), f"the document of line {line}")
        except OSError as error:
            raise DataError(f"{file.path} cannot be read: {error.strerror or error}.") from error
        if fault is not None and not changed:  # else that is why it is torn, or not well-formed
            faults.count(*fault)


def _fault(error: Exception, file: InputFile) -> tuple[str, str, str]:
    """Return reason, problem and fix; an error of the disk is raised again."""
    match error:
        case expat.ExpatError():
            return "files/not_xml", f"not well-formed XML ({error})", "Mend it"
        case RefusedXmlError():
            return "files/refused", str(error), "Take such parts out; declare no entities"
        case LookupError() | UnicodeError():
            return "files/undecodable", f"an encoding that is not read ({error})", "Convert it to UTF-8"
    if not is_torn(error):
        raise error
    return "files/torn", f"the {compression_of(file.path)} data is torn ({error})", "Copy the file again"


@dataclass(frozen=True, kw_only=True, slots=True)
class XmlCorpusConfig(XmlReader, CorpusSettings):
    """XML files, as the corpus."""


@dataclass(frozen=True, kw_only=True, slots=True)
class XmlSource(XmlReader, SourceSettings):
    """XML files, as one of several sources."""
