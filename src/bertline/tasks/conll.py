"""Readers of CoNLL and CoNLL-U: one word per line with its tag, blank lines between sentences."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertline.foundation.bad_rows import BadRow, BadRows
from bertline.foundation.errors import DataError
from bertline.tasks.entities import TAG, to_iob2, types_of
from bertline.tasks.source_config import ConllSourceConfig, ConlluSourceConfig, Separator
from bertline.tasks.source_files import read_splits, same_text
from bertline.tasks.stored_rows import SplitName, TaggedRows
from bertline.tasks.treebank import CONLLU_WIDTH, CONLLU_WORD, sentence_blocks

_UNSEEN = {"Cc", "Cf", "Co", "Zs", "Zl", "Zp", "Mn"}
_CONLLU_TAGS = {"upos": 3, "xpos": 4}


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """One sentence of a source with its tags (IOB2, where they mark entities)."""

    id: str
    """File and first line of the sentence, such as `train.conll:17`."""
    document: str
    """File and first line of its document, such as `train.conll:1`; the sentence's own id if no document is marked."""
    words: tuple[str, ...]
    """Words of the sentence: at least one, none empty."""
    tags: tuple[str, ...]


def read_conll(path: Path, config: ConllSourceConfig, bad_rows: BadRows) -> list[TaggedSentence]:
    """Read the sentences of a CoNLL file, plain or gzip; tags of any scheme become IOB2 (`to_iob2`).

    A line that begins with `-DOCSTART-`, or a comment `# newdoc`, starts a document. A line before a sentence that
    begins with `#` and has no tag in its place is a comment (`# id 5`; `#tag O` and `# O` are words).

    Raises:
        DataError: The file cannot be decoded, lacks a configured column or has no valid sentence, or a row is invalid
            and invalid rows are errors. The message names the file and, where there is one, the line.
    """
    first: list[tuple[str, int]] = []  # place and number of columns of the first row

    def is_comment(line: str) -> bool:
        tag = (split_columns(line, config.separator)[config.tag_column :] or [""])[0]
        return line.startswith("#") and not TAG.fullmatch(tag.strip(" "))

    def word_and_tag(where: str, line: str) -> tuple[str, str]:
        columns = split_columns(line, config.separator)
        problem = f"{where} has {len(columns)} column(s) by source.separator {config.separator!r}"
        for key in () if first else ("word_column", "tag_column"):
            if not -len(columns) <= (index := getattr(config, key)) < len(columns):
                raise DataError(
                    f"{problem}; source.{key} is {index}: {line[:60]!r}. Fix the line or set the column, or the "
                    "separator (tab, whitespace). A file without tags cannot be scored: set it to null."
                )
        if not first:
            first.append((where, len(columns)))
        if len(columns) != first[0][1]:
            raise BadRow(
                "too_many_columns" if len(columns) > first[0][1] else "too_few_columns",
                f"{problem}, the file's first row ({first[0][0]}) has {first[0][1]}: {line[:60]!r}.",
                "Fix the line, or set the separator (tab, whitespace). A word cannot hold it.",
            )
        word, tag = (columns[index].strip(" ") for index in (config.word_column, config.tag_column))
        if not word or not tag:
            missing = "tag" if word else "word"
            raise BadRow(f"empty_{missing}", f"{where} has an empty {missing}: {line[:60]!r}.", "Fix the line.")
        if not TAG.fullmatch(tag):
            raise BadRow(
                "unknown_tag",
                f"{where}: the tag is {tag!r}; expected O, B-TYPE, I-TYPE or another letter of IOBES.",
                "Set source.tag_column, or fix the tag.",
            )
        if config.types is not None and not {*types_of([tag])} <= {*config.types}:
            types = ", ".join(config.types)
            raise BadRow(
                "unknown_type",
                f"{where}: the tag is {tag!r}; source.types has {types}.",
                "Fix the tag, or add the type.",
            )
        return word, tag

    sentences = _sentences(path, config.encoding, is_comment, word_and_tag, bad_rows)
    return [replace(sentence, tags=tuple(to_iob2(sentence.tags))) for sentence in sentences]


def read_conllu(path: Path, source: ConlluSourceConfig, bad_rows: BadRows) -> list[TaggedSentence]:
    """Read the sentences of a CoNLL-U file, plain or gzip.

    Multiword tokens (`1-2`) and empty nodes (`8.1`) are not words and are skipped. A comment `# newdoc` starts a
    document.
    """

    def word_and_tag(where: str, line: str) -> tuple[str, str] | None:
        columns = line.split("\t")
        if len(columns) != CONLLU_WIDTH:
            raise BadRow(
                "wrong_number_of_columns",
                f"{where} has {len(columns)} columns separated by tabs, CoNLL-U has ten: {line[:60]!r}.",
            )
        if not columns[0].isdecimal():
            return None
        word, tag = columns[CONLLU_WORD].strip(), columns[_CONLLU_TAGS[source.tags]].strip()
        if not word or tag in ("", "_"):
            missing = f"no tag in its column {source.tags}" if word else "no word"
            raise BadRow("missing_tag" if word else "missing_word", f"{where} has {missing}: {line[:60]!r}.")
        return word, tag

    return _sentences(path, "utf-8", lambda line: line.startswith("#"), word_and_tag, bad_rows)


def split_columns(line: str, separator: Separator) -> list[str]:
    """Return the columns of a line; only the separator splits it, so that a word may contain a no-break space.

    >>> split_columns("10\\xa0000 \\t O", "whitespace")
    ['10\\xa0000', 'O']
    """
    return line.split("\t") if separator == "tab" else re.findall(r"[^ \t]+", line)


def _sentences(
    path: Path,
    encoding: str,
    is_comment: Callable[[str], bool],
    word_and_tag: Callable[[str, str], tuple[str, str] | None],
    bad_rows: BadRows,
) -> list[TaggedSentence]:
    """Return the sentences of a file; `word_and_tag` reads a line at a place, `is_comment` a line before a sentence."""
    sentences: list[TaggedSentence] = []
    for document, block in sentence_blocks(path, encoding, is_comment):
        begin = f"{path.name}:{block[0][0]}"
        try:
            read = [word_and_tag(f"{path}:{number}", line) for number, line in block]
            pairs = [pair for pair in read if pair is not None]
            if not pairs:
                raise BadRow("sentence_without_words", f"{path}:{block[0][0]}: the sentence has no word.")
        except BadRow as bad:
            bad_rows.report(bad.reason, str(bad), bad.advice)
            continue
        words, tags = zip(*pairs, strict=True)
        sentences.append(TaggedSentence(begin, document or begin, words, tags))
    if not sentences:
        bad_rows.end()
        raise DataError(f"{path} has no sentences that can be used. Give a file with words and tags.")
    return sentences


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

    >>> is_visible("\ufe0f"), is_visible("\u200b\x07"), is_visible("e\u0301"), is_visible("😀\ufe0f")
    (False, False, True, True)
    """
    return any(unicodedata.category(character) not in _UNSEEN and character != "\ufffd" for character in word)


def tagged_rows(sentences: Sequence[TaggedSentence]) -> TaggedRows:
    """Return sentences as rows to store."""
    return TaggedRows.of((each.id, each.document, list(each.words), list(each.tags)) for each in sentences)


def _words(sentence: TaggedSentence) -> str:
    return same_text([" ".join(sentence.words)])
