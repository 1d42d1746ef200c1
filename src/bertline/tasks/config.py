"""Configuration of one task: where its labelled rows come from, and how it is scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
    text_column: str | int
    """A column's name, or its number from 0 where the file has no header."""
    text_pair_column: str | int | None
    label_column: str | int
    header: bool
    quoting: bool
    """False for files with unbalanced quotes."""
    encoding: str


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
    text_column: str
    text_pair_column: str | None
    label_column: str


SourceConfig = DocsLibrarySourceConfig | DocsMatchSourceConfig | TableSourceConfig | HubSourceConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ChoiceSpace:
    """A hyperparameter that takes one of a list of values."""

    kind: Literal["choice"]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("values is empty; give at least one")


@dataclass(frozen=True, kw_only=True, slots=True)
class LogUniformSpace:
    """A hyperparameter drawn between two positive bounds, evenly in its logarithm."""

    kind: Literal["log_uniform"]
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high:
            raise ValueError(f"log_uniform needs 0 < low < high, found {self.low} and {self.high}")


SpaceConfig = ChoiceSpace | LogUniformSpace


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassificationTaskConfig:
    """Classification of single passages or of pairs."""

    kind: Literal["classification"]
    source: DocsLibrarySourceConfig | DocsMatchSourceConfig | TableSourceConfig | HubSourceConfig
    labels: tuple[str, ...] | None
    """The labels in order; None takes those of the train split, sorted. A label outside the list is an error."""
    metric: Literal["accuracy", "macro_f1", "matthews"]
    """What trials are chosen by, on dev; higher is better."""
    max_length: int
    """Most tokens of a sequence; longer ones are truncated."""
    num_train_rows: int | None
    """Labelled rows used for training; None takes all."""
    label_efficiency_rows: tuple[int, ...]
    """Other training sizes to score the best configuration at; empty for none."""
    dev_fraction: float
    test_fraction: float
    """Shares cut from train where the source has no dev or no test."""
    split_seed: int
    num_trials: int | None
    """Trials of this task's study; None takes `sweep.num_trials`."""
    space: dict[str, ChoiceSpace | LogUniformSpace]
    """Hyperparameters of this task's own space; each replaces the entry of that name in `sweep.space`."""

    def __post_init__(self) -> None:
        for name in ("num_train_rows", "num_trials", "max_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, found {value}")
