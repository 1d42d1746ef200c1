"""Reader of CoNLL files: one word per line with its tag, blank lines between sentences."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertline.foundation.errors import DataError
from bertline.tasks.bad_rows import BadRow, BadRows
from bertline.tasks.decoded_files import decoded_text
from bertline.tasks.source_config import ConllSourceConfig, Separator
from bertline.tasks.source_files import read_splits, same_text
from bertline.tasks.stored_rows import SplitName, TaggedRows
from bertline.tasks.tags import TAG, to_iob2, types_of

REPAIRED = "broken_tag_repaired"
"""Key under which repaired tags are counted. The sentence is kept."""

_UNSEEN = {"Cc", "Cf", "Co", "Zs", "Zl", "Zp", "Mn"}
_DOCUMENT_MARK = "-DOCSTART-"
_NEW_DOCUMENT_COMMENT = "# newdoc"


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """One sentence of a source with IOB2 tags."""

    id: str
    """File and first line of the sentence, such as `train.conll:17`."""
    document: str
    """File and first line of its document, such as `train.conll:1`; the sentence's own id if no document is marked."""
    words: tuple[str, ...]
    """Words of the sentence: at least one, none empty."""
    tags: tuple[str, ...]


def read_conll(path: Path, config: ConllSourceConfig, bad_rows: BadRows) -> list[TaggedSentence]:
    """Read the sentences of one file, plain or gzip.

    Lines with only white space are blank. A line that begins with `-DOCSTART-`, or a comment `# newdoc`, starts a
    document. Other comments are skipped: lines between sentences that begin with `#` and are not a word with its tag
    (`# id 5`; `#tag O` and `# O` are words), and in tab-separated files any line that begins with `#` and has no tab.

    Raises:
        DataError: The file cannot be decoded, lacks a configured column or has no valid sentence, a tag is broken and
            `on_broken_tags` is `error`, or a row is invalid and invalid rows are errors. The message names the file
            and, where there is one, the line.
    """
    reader = _Reader(path, config)
    sentences: list[TaggedSentence] = []
    document: str | None = None
    last: BadRow | None = None
    for begin, lines in _blocks(path, config):
        name = f"{path.name}:{begin}"
        if not lines:
            document = name
            continue
        try:
            words, tags, repaired = reader.tagged(lines)
        except BadRow as bad:
            bad_rows.found(bad)
            last = bad
            continue
        bad_rows.dropped[REPAIRED] += repaired
        sentences.append(TaggedSentence(name, document or name, words, tags))
    if last is not None and not sentences:
        raise DataError(f"{path}: no sentence can be used. The last one: {last}")
    if not sentences:
        raise DataError(f"{path} has no sentences: every line is blank or a comment. Give a file with words and tags.")
    return sentences


_Line = tuple[int, str]
"""Line number, from 1, and text of the line."""


def _blocks(path: Path, config: ConllSourceConfig) -> Iterator[tuple[int, list[_Line]]]:
    """Yield (number of the first line, lines) for each sentence, and (number, []) for each document marker."""
    lines: list[_Line] = []
    # Only line feeds end a line: words may contain rarer separators.
    read = [line.removesuffix("\r") for line in decoded_text(path, config.encoding).split("\n")]
    first = next((line for line in read if line.strip() and not line.startswith(("#", _DOCUMENT_MARK))), None)
    width = 0 if first is None else len(split_columns(first, config.separator))
    for number, line in enumerate(read, start=1):
        comment = _is_comment(line, width, config, inside=bool(lines))
        mark = line.startswith(_DOCUMENT_MARK) or (comment and line.startswith(_NEW_DOCUMENT_COMMENT))
        if lines and (mark or not line.strip()):
            yield lines[0][0], lines
            lines = []
        if mark:
            yield number, []
        elif line.strip() and not comment:
            lines.append((number, line))
    if lines:
        yield lines[0][0], lines


def _is_comment(line: str, width: int, config: ConllSourceConfig, *, inside: bool) -> bool:
    """Return whether a line is no word of a sentence; `width` is the number of columns of rows without `#`, or 0.

    `#` and `#tag` can be words. Then the line has the columns of the other rows, and a tag stands in its place.
    """
    if not line.startswith("#"):
        return False
    if config.separator == "tab" and ("\t" not in line or (not inside and line[1] == " ")):
        return True
    columns = split_columns(line, config.separator)
    tag = (columns[config.tag_column :] or [""])[0].strip(" ")
    is_row = len(columns) == (width or len(columns)) and (line[1:2].strip() != "" or TAG.fullmatch(tag) is not None)
    return not inside and not is_row


def split_columns(line: str, separator: Separator) -> list[str]:
    """Return the columns of a line; only the separator splits it, so that a word may contain a no-break space.

    >>> split_columns("10\\xa0000 \\t O", "whitespace")
    ['10\\xa0000', 'O']
    """
    match separator:
        case "tab":
            return line.split("\t")
        case "space":
            return line.strip(" ").split(" ")
        case _:
            return re.findall(r"[^ \t]+", line)


@dataclass(slots=True)
class _Reader:
    """Parser of the words and tags of one file. The first line sets the number of columns."""

    path: Path
    config: ConllSourceConfig
    first: _Line | None = None
    width: int = 0

    def tagged(self, lines: list[_Line]) -> tuple[tuple[str, ...], tuple[str, ...], int]:
        """Return the words of a sentence, its IOB2 tags, and how many tags were repaired.

        Raises:
            BadRow: A line of the sentence is invalid.
            DataError: The file lacks a configured column, or a tag is broken and `on_broken_tags` is `error`.
        """
        words, tags = zip(*(self._word_and_tag(number, line) for number, line in lines), strict=True)
        for (number, _), tag in zip(lines, tags, strict=True):
            self._check_tag(number, tag)
        converted, broken = to_iob2(tags, self.config.scheme)
        if broken and self.config.on_broken_tags == "error":
            raise DataError(
                f"{self.path}:{lines[broken[0].index][0]}: {broken[0].problem}, which {self.config.scheme} does not "
                "allow. Fix the tag, set source.scheme to the file's scheme, or set source.on_broken_tags to repair: "
                "an entity then begins or ends there, and is counted."
            )
        return words, tuple(converted), len(broken)

    def _word_and_tag(self, number: int, line: str) -> tuple[str, str]:
        columns = self._columns(number, line)
        word, tag = (columns[index].strip(" ") for index in (self.config.word_column, self.config.tag_column))
        if not word or not tag:
            missing = "word" if not word else "tag"
            raise BadRow(
                f"empty_{missing}",
                f"{self.path}:{number} has an empty {missing}: {_shown(line)}. Fix the line, or the column's number.",
            )
        return word, tag

    def _columns(self, number: int, line: str) -> list[str]:
        columns = split_columns(line, self.config.separator)
        problem = f"{self.path}:{number} has {len(columns)} column(s) by source.separator {self.config.separator!r}"
        if self.first is None:
            for key, index in (("word_column", self.config.word_column), ("tag_column", self.config.tag_column)):
                if not -len(columns) <= index < len(columns):
                    raise DataError(
                        f"{problem}; source.{key} is {index}: {_shown(line)}. Fix the line or set the column, or the "
                        "separator (tab, space, whitespace). A file without tags cannot be scored: set it to null."
                    )
            self.first, self.width = (number, line), len(columns)
        if len(columns) != self.width:
            raise BadRow(
                "too_many_columns" if len(columns) > self.width else "too_few_columns",
                f"{problem}, the file's first row (line {self.first[0]}) has {self.width}: {_shown(line)}. Fix the "
                "line, or set the separator (tab, space, whitespace). A word cannot hold it.",
            )
        return columns

    def _check_tag(self, number: int, tag: str) -> None:
        types = self.config.types
        try:
            (converted,), _ = to_iob2([tag], self.config.scheme)
        except ValueError as error:
            raise BadRow(
                "unknown_tag",
                f"{self.path}:{number}: {error}. Set source.scheme (iob1, iob2, iobes) or source.tag_column, or fix "
                "the tag.",
            ) from None
        for kind in types_of([converted]):
            if types is not None and kind not in types:
                close = difflib.get_close_matches(kind, types, n=1)
                meant = f" Is {close[0]!r} meant?" if close else ""
                raise BadRow(
                    "unknown_type",
                    f"{self.path}:{number}: the tag is {tag!r}; source.types has {', '.join(types)}.{meant} Fix the "
                    "tag, or add the type.",
                )


def _shown(line: str, most: int = 60) -> str:
    return repr(line if len(line) <= most else f"{line[:most]}...")


def tagged_splits(
    config: Any,
    read: Callable[[Path, Any, BadRows], list[TaggedSentence]],
    labels: Callable[[TaggedSentence], Iterable[str]],
) -> tuple[dict[SplitName, list[TaggedSentence]], Counter[str]]:
    """Read the splits of the files, cut missing splits from train by document, and shuffle train.

    A hash of its name assigns a document to a split, stratified by the labels of its sentences. If documents are not
    marked, a hash of its words assigns each sentence, so that equal sentences stay together. A train sentence whose
    words also occur in dev or test, or a dev sentence whose words also occur in test, is dropped and counted. So are
    words that are not `is_visible`: WNUT 2017 has variation selectors of emoji as words.
    """
    return read_splits(
        config,
        lambda file, source, bad_rows: list(_visible(read(file, source, bad_rows), bad_rows.dropped)),
        same=_words,
        name="sentence",
        labels=labels,
        kept_together=lambda sentence: sentence.document if sentence.document != sentence.id else _words(sentence),
    )


def _visible(sentences: Iterable[TaggedSentence], dropped: Counter[str]) -> Iterator[TaggedSentence]:
    """Yield the sentences without the words that are not visible; an entity that began there begins behind them."""
    for sentence in sentences:
        usable: list[tuple[str, str]] = []
        begun = ""
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            if is_visible(word):
                usable.append((word, begun if begun and tag == f"I{begun[1:]}" else tag))
                begun = ""
            elif tag.startswith("B-"):
                begun = tag
        dropped["invisible_word"] += len(sentence.words) - len(usable)
        dropped["sentence_without_words"] += not usable
        if usable:
            words, tags = zip(*usable, strict=True)
            yield replace(sentence, words=words, tags=tags)


def is_visible(word: str) -> bool:
    r"""Return whether a word has more than control, format and replacement characters, white space and combining marks.

    An uncased BERT removes those and has no token left; the rule is the same for all tokenizers, so that they are
    scored on the same words.

    Example:
        >>> is_visible("\ufe0f"), is_visible("\u200b\x07"), is_visible("e\u0301"), is_visible("😀\ufe0f")
        (False, False, True, True)
    """
    return any(unicodedata.category(character) not in _UNSEEN and character != "\ufffd" for character in word)


def tagged_rows(sentences: Sequence[TaggedSentence]) -> TaggedRows:
    """Return sentences as rows to store."""
    return TaggedRows.of((each.id, each.document, list(each.words), list(each.tags)) for each in sentences)


def _words(sentence: TaggedSentence) -> str:
    return same_text([" ".join(sentence.words)])
