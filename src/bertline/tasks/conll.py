"""Sentences of CoNLL files: a word a line with its tag, blank lines between sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bertline.foundation.errors import DataError
from bertline.tasks.decoded_files import decoded_text
from bertline.tasks.source_config import ConllSourceConfig
from bertline.tasks.tags import to_iob2

_DOCUMENT_MARK = "-DOCSTART-"
_NEW_DOCUMENT_COMMENT = "# newdoc"


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """One sentence of a source, its tags as IOB2."""

    id: str
    """`train.conll:17`: file and first line."""
    document: str
    """`train.conll:1`, the line that begins its document; the sentence's own id where the file marks no documents."""
    words: tuple[str, ...]
    """At least one; none is empty."""
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Word:
    line: int
    word: str
    tag: str


def read_conll(path: Path, config: ConllSourceConfig, dropped: Counter[str]) -> list[TaggedSentence]:
    """Read one file, plain or gzip.

    Lines of white space alone are blank. Lines that begin with `-DOCSTART-` begin a document; in a tab-separated file
    so do comments `# newdoc`, and other comments (CoNLL-U: lines that begin with `#` and have no tab, and lines that
    begin with `# ` between sentences) are passed over.

    Args:
        path: The file.
        config: Columns, separator, scheme and what to do with broken tags.
        dropped: Counts repairs under `broken_tag_repaired`.

    Raises:
        DataError: Naming file and line: undecodable bytes, too few columns, an empty word or tag, a tag of another
            scheme, or (with `on_broken_tags: error`) a tag that its neighbours do not allow.
    """
    sentences: list[TaggedSentence] = []
    document: str | None = None
    for begin, words in _blocks(path, config):
        if not words:
            document = f"{path.name}:{begin}"
            continue
        name = f"{path.name}:{begin}"
        tags = _iob2(path, words, config, dropped)
        sentences.append(TaggedSentence(name, document or name, tuple(word.word for word in words), tuple(tags)))
    if not sentences:
        raise DataError(f"{path} has no sentences: every line is blank or a comment. Give a file with words and tags.")
    return sentences


def _blocks(path: Path, config: ConllSourceConfig) -> Iterator[tuple[int, list[_Word]]]:
    """Sentences with the number of their first line, and, without words, the marks between documents."""
    words: list[_Word] = []
    for number, line in enumerate(_lines(path, config.encoding), start=1):
        comment = _is_comment(line, config, inside=bool(words))
        mark = line.startswith(_DOCUMENT_MARK) or (comment and line.startswith(_NEW_DOCUMENT_COMMENT))
        if words and (mark or not line.strip()):
            yield words[0].line, words
            words = []
        if mark:
            yield number, []
        elif line.strip() and not comment:
            words.append(_word(path, number, line, config))
    if words:
        yield words[0].line, words


def _is_comment(line: str, config: ConllSourceConfig, *, inside: bool) -> bool:
    # In a tab-separated file of words, "#" and "#tag" are words and have their tag behind a tab.
    return config.separator == "tab" and line.startswith("#") and ("\t" not in line or (not inside and line[1] == " "))


def _word(path: Path, number: int, line: str, config: ConllSourceConfig) -> _Word:
    match config.separator:
        case "tab":
            columns = line.split("\t")
        case "space":
            columns = line.strip(" ").split(" ")
        case _:
            columns = line.split()
    values = []
    for key, index in (("word_column", config.word_column), ("tag_column", config.tag_column)):
        if not -len(columns) <= index < len(columns):
            raise DataError(
                f"{path}:{number} has {len(columns)} column(s) by source.separator {config.separator!r}; "
                f"source.{key} is {index}: {_shown(line)}. Mend the line or set the column, or the separator (tab, "
                "space, whitespace). A file without tags cannot be scored: set it to null."
            )
        values.append(columns[index])
    word, tag = (value.strip(" ") for value in values)
    if not word or not tag:
        missing = "word" if not word else "tag"
        raise DataError(
            f"{path}:{number} has an empty {missing}: {_shown(line)}. Mend the line, or the column's number."
        )
    return _Word(number, word, tag)


def _iob2(path: Path, words: list[_Word], config: ConllSourceConfig, dropped: Counter[str]) -> list[str]:
    given = [word.tag for word in words]
    try:
        tags, broken = to_iob2(given, config.scheme)
    except ValueError:
        for word in words:
            try:
                to_iob2([word.tag], config.scheme)
            except ValueError as error:
                raise DataError(
                    f"{path}:{word.line}: {error}. Set source.scheme (iob1, iob2, iobes) or source.tag_column, or mend "
                    "the tag."
                ) from None
        raise
    if broken and config.on_broken_tags == "error":
        first = broken[0]
        raise DataError(
            f"{path}:{words[first.index].line}: {first.problem}, which {config.scheme} does not allow. Mend the tag, "
            "set source.scheme to the file's scheme, or set source.on_broken_tags to repair: an entity then begins "
            "or ends there, and is counted."
        )
    dropped["broken_tag_repaired"] += len(broken)
    return tags


def _lines(path: Path, encoding: str) -> list[str]:
    """The file's lines without their ends. Only line feeds end a line: words may hold the rarer separators."""
    return [line.removesuffix("\r") for line in decoded_text(path, encoding).split("\n")]


def _shown(line: str, most: int = 60) -> str:
    return repr(line if len(line) <= most else f"{line[:most]}...")
