"""Configuration of sources: where the rows of a task come from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

OnBadRow = Literal["error", "skip"]
"""`error` ends the stage and names file and row; `skip` leaves the row out and counts it under a reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DocsLibrarySourceConfig:
    """Which library does this passage document? Made from the packages in `python_docs`; names are removed."""

    kind: Literal["docs_library"]
    min_words: int
    max_words: int
    num_dev_rows: int
    num_test_rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DocsMatchSourceConfig:
    """Does this summary belong to this function? Negatives are summaries from the same module."""

    kind: Literal["docs_match"]
    min_words: int
    num_dev_rows: int
    num_test_rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DocsParametersSourceConfig:
    """Which words of a description are names of the function's parameters? Labels come from the signature."""

    kind: Literal["docs_parameters"]
    min_words: int
    max_words: int
    num_dev_rows: int
    num_test_rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DocsSearchSourceConfig:
    """Find the function for a sentence: the query is its summary, the document is the rest of what is said of it."""

    kind: Literal["docs_search"]
    min_words: int
    max_words: int
    """Of a document; longer ones are cut at a word."""
    num_documents: int
    num_dev_rows: int
    num_test_rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TableSourceConfig:
    """Files of your own: CSV, TSV, JSONL or Parquet (`.gz` too)."""

    kind: Literal["table"]
    path: str
    """The folder of the files, or one file that is split by `dev_fraction` and `test_fraction`."""
    format: Literal["auto", "csv", "tsv", "jsonl", "parquet"]
    train_file: str | None
    dev_file: str | None
    test_file: str | None
    """File names in `path`; a missing dev or test is cut from train by a hash of the row."""
    extra_tests: dict[str, str]
    """More test files by name (MNLI's `mismatched`); each is scored by itself, as the split `test_NAME`."""
    text_column: str | int
    """A column's name, or its number from 0 where the file has no header."""
    text_pair_column: str | int | None
    label_column: str | int
    label_pattern: str | None
    """A regular expression whose first group is the label (`^(\\w+):` takes NUM from `NUM:dist`); None takes all."""
    label_separator: str | None
    """What stands between the labels of a row that has several (multi-label); JSONL and Parquet may hold lists."""
    header: bool
    quoting: bool
    """False for files with unbalanced quotes."""
    separator: str | None
    """One character between the fields of csv and tsv; None goes by the format."""
    max_fields: int | None
    """Split a line into at most so many fields: the last one keeps the rest, separators and all. None: no limit."""
    extra_fields: Literal["error", "ignore"]
    """What is done with a row that has more fields than the header (or than the first row, without a header)."""
    encoding: str
    on_bad_row: OnBadRow
    """Empty text, missing or unknown label, a number that is none, a wrong number of fields."""

    def __post_init__(self) -> None:
        check_delimiting(self.separator, self.max_fields, quoting=self.quoting)
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
    name: str
    revision: str
    subset: str | None
    train_split: str
    dev_split: str | None
    test_split: str | None
    extra_tests: dict[str, str]
    """More test splits by name."""
    text_column: str
    text_pair_column: str | None
    label_column: str
    on_bad_row: OnBadRow

    def __post_init__(self) -> None:
        _check_names(self.extra_tests)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConllSourceConfig:
    """A word a line with its tag, blank lines between sentences, `-DOCSTART-` lines between documents."""

    kind: Literal["conll"]
    path: str
    """The folder of the files, or one file, which all splits are cut from: the names below are not used then."""
    train_file: str | None
    dev_file: str | None
    test_file: str | None
    word_column: int
    tag_column: int
    """Columns from 0; negative ones count from the end."""
    separator: Literal["tab", "space", "whitespace"]
    scheme: Literal["iob1", "iob2", "iobes"]
    """How the file's tags mark entities; they are kept as IOB2."""
    on_broken_tags: Literal["error", "repair"]
    """An I- that continues nothing, an unclosed E-: `repair` begins a new entity there and counts it."""
    types: tuple[str, ...] | None
    """The types of entities that there are; None takes those that are found. Another one is a bad row."""
    encoding: str
    on_bad_row: OnBadRow
    """A line with more or fewer columns than the file's first, an empty word or tag, a tag that the scheme or `types`
    does not have: `skip` leaves its whole sentence out."""

    def __post_init__(self) -> None:
        if self.types is not None and (not self.types or len(set(self.types)) < len(self.types)):
            raise ValueError(f"types must be one at least, each once, found {list(self.types)}; null takes all")


@dataclass(frozen=True, kw_only=True, slots=True)
class SquadSourceConfig:
    """SQuAD 1.1 or 2.0 JSON. A split that is not given is cut from train by article."""

    kind: Literal["squad"]
    path: str
    """The folder of the files, or one file, which all splits are cut from: the names below are not used then."""
    train_file: str | None
    dev_file: str | None
    test_file: str | None
    on_bad_row: OnBadRow
    """An answer whose text does not stand where it says (`skip` moves it where it stands in one other place only), an
    empty question or context, two questions of one id, no answer without a mark that there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BeirSourceConfig:
    """A BEIR folder: corpus.jsonl, queries.jsonl, qrels/train.tsv, dev.tsv, test.tsv (`.gz` too)."""

    kind: Literal["beir"]
    path: str
    train_qrels: str | None
    dev_qrels: str | None
    test_qrels: str
    """File names in `path`; queries of a missing split are cut from train, or from test where there is no train."""
    on_bad_row: OnBadRow
    """Judgements that name unknown documents or queries, empty documents."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SmartSourceConfig:
    """SMART collections (`.I .T .W .X`, as CISI) with a relation file of query and document numbers."""

    kind: Literal["smart"]
    path: str
    documents_file: str
    queries_file: str
    judgements_file: str
    on_bad_row: OnBadRow


@dataclass(frozen=True, kw_only=True, slots=True)
class TrecSourceConfig:
    """TREC XML: `<DOC><DOCNO>`, `<top><num>`, and a qrels file of four columns (Cranfield)."""

    kind: Literal["trec"]
    path: str
    documents_file: str
    queries_file: str
    judgements_file: str
    query_ids: Literal["number", "position"]
    """Whether the judgements name a query by its `<num>` or, as Cranfield's do, by its place in the file (from 1)."""
    on_bad_row: OnBadRow


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswersSourceConfig:
    """A table of question, candidate answer and label (TrecQA): the rows of a question are what is re-ranked."""

    kind: Literal["answers"]
    path: str
    """The folder of the files, or one file, which all splits are cut from: the names below are not used then."""
    train_file: str | None
    dev_file: str | None
    test_file: str | None
    query_column: str
    text_column: str
    label_column: str
    """0 or 1, or a grade."""
    quoting: bool
    """False for files with unbalanced quotes."""
    encoding: str
    on_bad_row: OnBadRow
    """An empty question or answer, a label that is no whole number, a wrong number of fields."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SummariesSourceConfig:
    """JSONL of documents and their summaries."""

    kind: Literal["summaries"]
    path: str
    """The folder of the files, or one file, which all splits are cut from: the names below are not used then."""
    train_file: str | None
    dev_file: str | None
    test_file: str | None
    document_column: str
    """A text, which is split into sentences, or a list of sentences."""
    summary_column: str
    """The same; sentences are joined by spaces."""
    on_bad_row: OnBadRow
    """A missing column, an empty document or summary, a summary without a word that ROUGE counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlainTextSourceConfig:
    """Any text, a passage a line (`.txt`) or a row (JSONL, CSV, Parquet with `text_column`)."""

    kind: Literal["text"]
    path: str
    """The folder of the files, or one file."""
    train_file: str | None
    dev_file: str | None
    test_file: str | None
    text_column: str
    encoding: str
    on_bad_row: OnBadRow
    """A table's empty texts and missing columns; blank lines of a text file are no rows."""


def check_delimiting(separator: str | None, max_fields: int | None, *, quoting: bool) -> None:
    """What can be said of how lines are cut into fields.

    Raises:
        ValueError: These cannot be.
    """
    if separator is not None and len(separator) != 1:
        raise ValueError(f"separator must be one character, found {separator!r}")
    if max_fields is not None and (max_fields < 1 or quoting):
        raise ValueError(
            f"max_fields must be at least 1 and is for files without quoting (quoting: false), found {max_fields} with "
            f"quoting: {str(quoting).lower()}"
        )


def _check_names(extra_tests: dict[str, str]) -> None:
    """They become parts of file names."""
    for name in extra_tests:
        if re.fullmatch(r"[A-Za-z0-9_]+", name) is None:
            raise ValueError(f"extra_tests: {name!r} must be of letters, digits and underscores")


TextPairSource = DocsLibrarySourceConfig | DocsMatchSourceConfig | TableSourceConfig | HubSourceConfig
CollectionSource = DocsSearchSourceConfig | BeirSourceConfig | SmartSourceConfig | TrecSourceConfig
