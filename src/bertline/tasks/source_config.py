"""Configuration of the sources of task rows."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertline.corpus.tables import check_delimiting
from bertline.foundation.checked import UserPath, UserPathOrHubName

Separator = Literal["tab", "whitespace"]
"""Separator of the columns of CoNLL files."""
OnBadRow = Literal["error", "skip"]
"""Handling of invalid rows: `error` fails the stage and names file and row; `skip` drops and counts the row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FilesSourceConfig:
    """Files of labelled rows, one for each split."""

    path: UserPath
    """Folder of the files, or a single file from which all splits are cut (`dev_fraction`, `test_fraction`); then the
    names below are not used."""
    train_file: str | None
    """File of the train rows, in `path`."""
    dev_file: str | None
    """File of the dev rows; None cuts dev from train."""
    test_file: str | None
    """File of the test rows; None cuts test from train."""
    on_bad_row: OnBadRow
    """Handling of invalid rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableSourceConfig(FilesSourceConfig):
    """The user's own files: CSV, TSV, JSONL, JSON arrays, Excel or Parquet (compressed too, except the last two)."""

    kind: Literal["table"]
    format: Literal["auto", "csv", "tsv", "jsonl", "json", "xlsx", "parquet"]
    extra_tests: dict[str, str]
    """Additional test files by name (MNLI's `mismatched`); each is scored separately, as the split `test_NAME`."""
    text_column: str | int
    """Name of the text column, or its number from 0 if the file has no header."""
    text_pair_column: str | int | None
    """Column of the second text, for pairs; None: single texts."""
    label_column: str | int | None
    """Column of the label; None: `label_columns` has them."""
    label_pattern: str | None
    """Regular expression whose first group is the label (`^(\\w+):` gives NUM for `NUM:dist`); None takes the cell."""
    label_separator: str | None
    """Separator between the labels of a row (multi-label). A cell may contain a list instead."""
    header: bool
    """Whether the first line names the columns."""
    quoting: bool
    """Whether fields may be quoted; set to false for files with unbalanced quotes."""
    separator: str | None
    """Character between fields of CSV and TSV; None takes the format's own."""
    max_fields: int | None
    """Maximum number of fields of a line; the last one keeps the rest, including separators. None means no limit."""
    extra_fields: Literal["error", "ignore"]
    """Handling of rows with more fields than the header, or than the first row if there is no header."""
    encoding: str
    """Character encoding of the files."""
    on_bad_row: OnBadRow
    """Handling of rows with an empty text, a missing, unknown or non-numeric label, or a wrong number of fields."""
    group_column: str | int | None = None
    """Column that is equal in rows that are not independent, such as their patient or author. A group must be in one
    split, and verdicts count it as one row; None: all rows are independent. Of one word a row: its sentence."""
    label_columns: tuple[str | int, ...] | None = None
    """A column for each label (multi-label), whose cells are 0 or 1, or false or true; `label_column` is None then."""

    def __post_init__(self) -> None:
        check_delimiting(self.separator, self.max_fields, quoting=self.quoting)
        if (self.label_column is None) == (self.label_columns is None):
            raise ValueError("give either label_column or label_columns, and null for the other")
        if self.label_separator == "":
            raise ValueError("label_separator is empty; give what stands between labels, or null")
        if self.label_pattern is not None:
            try:
                num_groups = re.compile(self.label_pattern).groups
            except re.error as error:
                raise ValueError(f"label_pattern {self.label_pattern!r} is no regular expression: {error}") from error
            if not num_groups:
                raise ValueError(f"label_pattern {self.label_pattern!r} has no group; put () around the label")
        _check_names(self.extra_tests)


@dataclass(frozen=True, kw_only=True, slots=True)
class HubSourceConfig:
    """A labelled Hugging Face dataset."""

    kind: Literal["hub"]
    name: UserPathOrHubName
    """Name of the dataset on the hub, or a folder of `save_to_disk` or of data files, such as Parquet."""
    revision: str | None
    """Commit hash of the dataset, for reproducibility; a folder has none."""
    subset: str | None
    """Name of the subset (configuration) of the dataset; None: the only one."""
    train_split: str
    """Split of the train rows."""
    dev_split: str | None
    """Split of the dev rows; None cuts dev from train."""
    test_split: str | None
    """Split of the test rows; None cuts test from train."""
    extra_tests: dict[str, str]
    """Additional test splits by name."""
    text_column: str
    """Name of the text column."""
    text_pair_column: str | None
    """Column of the second text, for pairs; None: single texts."""
    label_column: str
    """Column of the label."""
    on_bad_row: OnBadRow
    """Handling of rows with an empty text or a missing, unknown or non-numeric label."""
    group_column: str | None = None
    """Column that is equal in rows that are not independent; see `TableSourceConfig.group_column`."""

    def __post_init__(self) -> None:
        if self.revision is None and not Path(self.name).is_dir():
            raise ValueError(
                f"revision is null, and {self.name} is no folder here; give the commit hash of the dataset"
            )
        _check_names(self.extra_tests)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConllSourceConfig(FilesSourceConfig):
    """CoNLL files: one word per line with its tag, blank lines between sentences, `-DOCSTART-` between documents.

    Tags are those of IOB1, IOB2, IOBES, BILOU or BMES; they are stored as IOB2.
    """

    kind: Literal["conll"]
    word_column: int
    """Column of the word; see `tag_column`."""
    tag_column: int
    """Column numbers from 0; negative numbers count from the end."""
    separator: Separator
    """Character between columns; `whitespace`: any number of spaces and tabs."""
    types: tuple[str, ...] | None
    """Entity types; None takes all types found. A tag with another type makes the row invalid."""
    encoding: str
    """Character encoding of the files."""
    on_bad_row: OnBadRow
    """Handling of a line with another number of columns than the file's first, an empty word, no tag, or a tag outside
    `types`. `skip` drops its whole sentence."""

    def __post_init__(self) -> None:
        if self.types is not None and (not self.types or len(set(self.types)) < len(self.types)):
            raise ValueError(f"types must be one at least, each once, found {list(self.types)}; null takes all")


@dataclass(frozen=True, kw_only=True, slots=True)
class ConlluSourceConfig(FilesSourceConfig):
    """CoNLL-U files (universaldependencies.org/format.html)."""

    kind: Literal["conllu"]
    tags: Literal["upos", "xpos"]
    """Column of the tags: universal parts of speech, or those of the language."""
    on_bad_row: OnBadRow
    """Handling of a line that does not have ten columns, or has no word or no tag. `skip` drops its whole sentence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SquadSourceConfig(FilesSourceConfig):
    """SQuAD 1.1 or 2.0 JSON. A missing split is cut from train by article."""

    kind: Literal["squad"]
    on_bad_row: OnBadRow
    """Handling of an answer whose text is not at its `answer_start`, an empty question, context or answer, a repeated
    id, or a question without answers that is not marked as impossible."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BeirSourceConfig:
    """BEIR folder: corpus.jsonl, queries.jsonl (or .csv ...), qrels/train.tsv, dev.tsv, test.tsv (`.gz` too)."""

    kind: Literal["beir"]
    path: UserPath
    """Folder of the files."""
    train_qrels: str | None
    """File of the train judgements, in `path`; see `test_qrels`."""
    dev_qrels: str | None
    """File of the dev judgements, in `path`; see `test_qrels`."""
    test_qrels: str
    """File names in `path`. Queries of a missing split are cut from train, or from test if there is no train."""
    on_bad_row: OnBadRow
    """Handling of malformed lines, repeated or empty documents and queries, and judgements that name unknown documents
    or queries or contradict each other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SentencePairsSourceConfig:
    """Sentences and their translations: two UTF-8 files a language, where line n translates line n."""

    kind: Literal["sentence_pairs"]
    path: UserPath
    """Folder of the files."""
    languages: tuple[str, ...]
    """Languages of the queries; each takes the place of `{language}` in the file names."""
    queries_file: str
    """Name of the file of a language's sentences, in `path`."""
    documents_file: str
    """Name of the file of their translations, in `path`."""
    on_bad_row: OnBadRow
    """Handling of blank lines."""

    def __post_init__(self) -> None:
        if not self.languages or len(set(self.languages)) < len(self.languages):
            raise ValueError(f"languages must be one at least, each once, found {list(self.languages)}")
        if len(self.languages) > 1 and "{language}" not in self.queries_file:
            raise ValueError(f"queries_file must have {{language}} for several languages, found {self.queries_file!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswersSourceConfig(FilesSourceConfig):
    """Table of question, candidate answer and label (TrecQA). The rows of a question are its candidates."""

    kind: Literal["answers"]
    query_column: str
    """Column of the question."""
    text_column: str
    """Column of the candidate answer."""
    label_column: str
    """Column of the label: 0, 1 or a higher grade of relevance."""
    quoting: bool
    """Whether fields may be quoted; set to false for files with unbalanced quotes."""
    encoding: str
    """Character encoding of the files."""
    on_bad_row: OnBadRow
    """Handling of rows with an empty question or answer, a non-integer label, or a wrong number of fields."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SummariesSourceConfig(FilesSourceConfig):
    """JSONL files of documents and their summaries."""

    kind: Literal["summaries"]
    document_column: str
    """Column of the document: a text, which is split into sentences, or a list of sentences."""
    summary_column: str
    """Column of the summary: a text, or a list of sentences, which are joined by spaces."""
    on_bad_row: OnBadRow
    """Handling of rows with a missing column, an empty document or summary, or a summary without a word that ROUGE
    counts."""


def _check_names(extra_tests: dict[str, str]) -> None:
    """Check the names of extra tests, which become parts of file names."""
    for name in extra_tests:
        if re.fullmatch(r"[A-Za-z0-9_]+", name) is None:
            raise ValueError(f"extra_tests: {name!r} must be of letters, digits and underscores")
