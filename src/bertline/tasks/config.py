"""Settings that all kinds of tasks share; `kinds/NAME.py` has those of each kind."""

from dataclasses import dataclass
from typing import Annotated, Literal

from bertline.foundation.checked import (
    Checked,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    UserPath,
    UserPathOrHubName,
    at_least,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChoiceSpace(Checked):
    """A hyperparameter that takes one of a list of values."""

    kind: Literal["choice"]
    values: tuple[float, ...]
    """Values to choose from."""

    def check(self) -> None:
        if not self.values:
            raise ValueError("values is empty; give at least one")


@dataclass(frozen=True, kw_only=True, slots=True)
class LogUniformSpace(Checked):
    """A hyperparameter sampled log-uniformly between two positive bounds."""

    kind: Literal["log_uniform"]
    low: PositiveFloat
    """Lower bound."""
    high: float
    """Upper bound."""

    def check(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"low must be below high, found {self.low} and {self.high}")


SpaceConfig = ChoiceSpace | LogUniformSpace


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseTaskConfig(Checked):
    """Settings that all kinds of tasks share."""

    max_length: Annotated[int, at_least(3)]
    """Maximum number of tokens of a sequence: at least [CLS], one token and [SEP]."""
    num_train_rows: PositiveInt | None
    """Number of rows used for training (questions, sentences or queries, depending on the task); None uses all."""
    label_efficiency_rows: tuple[int, ...]
    """Additional training set sizes at which the best configuration is scored; empty for none."""
    max_dev_rows: PositiveInt | None
    """Maximum number of dev rows; see `max_test_rows`."""
    max_test_rows: PositiveInt | None
    """Maximum number of rows of dev, and of each test split. `split_seed` decides which rows are kept; dropped rows are
    counted. None keeps all."""
    dev_fraction: float
    """Fraction of train that becomes dev if the source has no dev."""
    test_fraction: float
    """Fractions of train that become dev or test if the source has no dev or no test. A label has about this fraction
    of its rows in each, and at least one; with too few rows for all splits, its rows stay in train."""
    split_seed: int
    """Seed of the hash that assigns rows to splits."""
    start_from: UserPathOrHubName | None
    """Encoder to fine-tune: None for the pipeline's own, `random` for its architecture with random weights, or any BERT
    checkpoint (`model_type: bert`) as a folder or a hub name with its revision
    (`google-bert/bert-base-uncased@COMMIT`)."""
    teacher: UserPath | None
    """Folder of a fine-tuned model of this task (any folder with a task.json) that `start_from` learns from, too: its
    outputs are soft targets of train and of `unlabelled` (`fine_tuning.soft_weight`). It has the student's vocabulary;
    None: no teacher."""
    unlabelled: UserPath | None
    """File of rows without labels, which have the teacher's soft targets alone: CSV, TSV, JSONL or Parquet with the
    columns of the texts (of the source, or those that `bertline predict` reads). None: none."""
    num_trials: PositiveInt | None
    """Number of trials of this task's study; None uses `sweep.num_trials`."""
    space: dict[str, ChoiceSpace | LogUniformSpace]
    """Task-specific search space; with `sweep.task_spaces` each entry replaces that of the same name in `sweep.space`,
    else it is not used."""
    fine_tuning: dict[str, float | int | str | None]
    """Task-specific values for fields of `sweep.fine_tuning`."""

    def check(self) -> None:
        if self.unlabelled is not None and self.teacher is None:
            raise ValueError("unlabelled rows are learnt from a teacher alone; name the folder of one (teacher)")

    @property
    def reads_pairs(self) -> bool | None:
        """Whether an input is a pair of texts; None where the rows are not known, as of a checkpoint from elsewhere."""
        if (source := getattr(self, "source", None)) is None:
            return None
        return source.kind == "docs_match" or getattr(source, "text_pair_column", None) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class WordTaskConfig(BaseTaskConfig):
    """Configuration shared by tasks that tag words."""

    word_logits: Literal["first", "mean"]
    """Logits of a word: those of its first token (paper, section 5.3), or the mean over its tokens in the window from
    which it is predicted."""
    word_case: Literal["plain", "marked"]
    """`marked` shows a lower-casing encoder which words have capitals, through separate token types."""
    window_overlap: NonNegativeInt
    """Number of tokens that consecutive windows of a sentence longer than `max_length` share."""

    def check(self) -> None:
        room = self.max_length - 2  # [CLS] and [SEP]; `Layout.room` is exact, with the special tokens of a tokenizer
        if self.window_overlap >= room:
            raise ValueError(
                f"window_overlap must be below the {room} tokens that a window of max_length="
                f"{self.max_length} holds besides [CLS] and [SEP], found {self.window_overlap}"
            )
