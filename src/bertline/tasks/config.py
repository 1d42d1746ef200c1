"""Configuration of one task: its rows, its head, and how it is scored. One class for each use of BERT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bertline.tasks.source_config import (
    AnswersSourceConfig,
    BeirSourceConfig,
    ConllSourceConfig,
    DocsLibrarySourceConfig,
    DocsMatchSourceConfig,
    DocsParametersSourceConfig,
    DocsSearchSourceConfig,
    HubSourceConfig,
    PlainTextSourceConfig,
    SmartSourceConfig,
    SquadSourceConfig,
    SummariesSourceConfig,
    TableSourceConfig,
    TrecSourceConfig,
)

Pooling = Literal["mean", "cls"]


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
class BaseTaskConfig:
    """What every task has."""

    max_length: int
    """Most tokens of a sequence."""
    num_train_rows: int | None
    """Rows used for training (questions, sentences, queries: what the task counts in); None takes all."""
    label_efficiency_rows: tuple[int, ...]
    """Other training sizes to score the best configuration at; empty for none."""
    max_dev_rows: int | None
    max_test_rows: int | None
    """Most rows of dev, and of each test: a sample by `split_seed` stays, the others are counted. None takes all."""
    dev_fraction: float
    test_fraction: float
    """Shares cut from train where the source has no dev or no test."""
    split_seed: int
    start_from: str | None
    """The encoder: None for the line's own, `random` for its architecture with random weights, or any BERT checkpoint
    (`model_type: bert`) as a folder or a hub name with its revision (`google-bert/bert-base-uncased@COMMIT`)."""
    num_trials: int | None
    """Trials of this task's study; None takes `sweep.num_trials`."""
    space: dict[str, ChoiceSpace | LogUniformSpace]
    """Hyperparameters of this task's own space; each replaces the entry of that name in `sweep.space`."""
    fine_tuning: dict[str, float | int | str | None]
    """Fields of `sweep.fine_tuning` that this task sets otherwise."""

    def __post_init__(self) -> None:
        for name in ("num_train_rows", "max_dev_rows", "max_test_rows", "num_trials", "max_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, found {value}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassificationTaskConfig(BaseTaskConfig):
    """Classification of single passages or of pairs; one label a row, or any number of them (`multi_label`)."""

    kind: Literal["classification"]
    source: DocsLibrarySourceConfig | DocsMatchSourceConfig | TableSourceConfig | HubSourceConfig
    labels: tuple[str, ...] | None
    """The labels in order; None takes those of the train split, sorted. A label outside the list is an error."""
    multi_label: bool
    """Each label by itself: rows may have none, and one label is enough where some rows have it and others do not."""
    metric: Literal["accuracy", "macro_f1", "micro_f1", "matthews", "f1"]
    """What trials are chosen by, on dev; higher is better. `f1` is that of the second of two labels (MRPC, QQP)."""
    long_texts: Literal["truncate", "windows"]
    """`windows` reads a long text in overlapping pieces and pools their scores."""
    window_overlap: int
    """Tokens that neighbouring windows share."""
    window_pooling: Literal["mean", "max"]
    calibration: Literal["none", "temperature"]
    """`temperature`: probabilities are those of the logits divided by a number, which dev chooses by their likelihood
    (Guo et al. 2017, arXiv 1706.04599, section 4.2). The likeliest label stays the same."""
    shared_tokens: Literal["plain", "marked"]
    """`marked` (pairs only) shows the encoder which tokens match the other text, whole or in part, by token types of
    their own. It helps a small encoder where overlap matters; outside bertline, the token types have to be made as the
    model card says."""

    def __post_init__(self) -> None:
        BaseTaskConfig.__post_init__(self)
        # Of several labels a row, one by itself is a question of yes or no.
        least = 1 if self.multi_label else 2
        if self.labels is not None and (len(self.labels) < least or len(set(self.labels)) < len(self.labels)):
            raise ValueError(f"labels must be {least} at least, each once, found {list(self.labels)}")
        if self.multi_label and self.metric in ("matthews", "f1"):
            raise ValueError(f"metric {self.metric} is for one label a row; with multi_label take macro_f1 or micro_f1")
        if not self.multi_label and getattr(self.source, "label_separator", None) is not None:
            raise ValueError(
                "source.label_separator is for several labels a row; set multi_label: true or leave it null"
            )
        if self.shared_tokens == "marked" and not self.reads_pairs:
            raise ValueError(
                "shared_tokens: marked is for pairs of texts; name source.text_pair_column, or set shared_tokens: plain"
            )
        # In a pair the longer text may have to share the sequence with as long a part of the other.
        if self.long_texts == "windows" and not 0 <= self.window_overlap < (self.max_length - 3) // 2:
            raise ValueError(
                f"window_overlap must be at least 0 and, for long_texts: windows, below half of max_length, found "
                f"{self.window_overlap} with max_length {self.max_length}"
            )

    @property
    def reads_pairs(self) -> bool:
        """Whether an input is two texts."""
        return self.source.kind == "docs_match" or getattr(self.source, "text_pair_column", None) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class RegressionTaskConfig(BaseTaskConfig):
    """A number for a passage or, more often, for how alike two passages are."""

    kind: Literal["regression"]
    source: TableSourceConfig | HubSourceConfig
    low: float
    high: float
    """The scale of the numbers (STS-B: 0 to 5). A number outside it is a bad row."""
    head: Literal["linear", "cosine"]
    """`linear`: one number from [CLS] of both texts together. `cosine`: each text by itself, pooled, compared."""
    pooling: Literal["mean", "cls"]
    """Of the `cosine` head."""
    metric: Literal["pearson", "spearman"]

    def __post_init__(self) -> None:
        BaseTaskConfig.__post_init__(self)
        if not self.low < self.high:
            raise ValueError(f"low must be below high, found {self.low} and {self.high}")
        if self.head == "cosine" and self.source.text_pair_column is None:
            raise ValueError("head cosine compares two texts; name source.text_pair_column, or take head: linear")
        if getattr(self.source, "label_separator", None) is not None:
            raise ValueError("source.label_separator is for several labels a row; a regression task has one number")


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenClassificationTaskConfig(BaseTaskConfig):
    """A tag for each word: names of people, places, parameters. Tags are IOB2 (`O`, `B-TYPE`, `I-TYPE`)."""

    kind: Literal["token_classification"]
    source: DocsParametersSourceConfig | ConllSourceConfig
    head: Literal["softmax", "crf"]
    word_logits: Literal["first", "mean"]
    """What a word's logits are: those of its first token (paper, section 5.3), or the mean over its tokens in the
    window that it is predicted from."""
    word_case: Literal["plain", "marked"]
    """`marked` shows a lower-casing encoder which words have capitals, by token types of their own."""
    outside_margin: Literal["none", "dev"]
    """`dev` (softmax only) takes a word for O only where its logit is higher than the best tag's by a margin that dev
    chooses by the metric: most words are O, so that the likeliest label misses entities."""
    window_overlap: int
    """Sentences longer than `max_length` are read in windows that share so many tokens."""
    metric: Literal["entity_f1"]

    def __post_init__(self) -> None:
        BaseTaskConfig.__post_init__(self)
        if self.outside_margin == "dev" and self.head == "crf":
            raise ValueError("outside_margin: dev is for head: softmax; a CRF decides on whole label sequences")
        room = self.max_length - 2  # [CLS] and [SEP]
        if not 0 <= self.window_overlap < room:
            raise ValueError(
                f"window_overlap must be at least 0 and below the {room} tokens that a window of max_length="
                f"{self.max_length} holds beside [CLS] and [SEP], found {self.window_overlap}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionAnsweringTaskConfig(BaseTaskConfig):
    """The answer to a question is a span of the context, or, where the data has such questions, there is none."""

    kind: Literal["question_answering"]
    source: SquadSourceConfig
    window_overlap: int
    """Tokens of context that neighbouring windows share (`doc_stride` counts the others)."""
    max_question_length: int
    """In tokens; longer questions are cut at the end."""
    max_answer_length: int
    """In tokens."""
    metric: Literal["f1", "exact_match"]

    def __post_init__(self) -> None:
        BaseTaskConfig.__post_init__(self)
        for name, least in (("window_overlap", 0), ("max_question_length", 1), ("max_answer_length", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, found {getattr(self, name)}")
        room = self.max_length - self.max_question_length - 3  # [CLS] and two [SEP]
        if self.window_overlap >= room:
            raise ValueError(
                f"window_overlap is {self.window_overlap}, but beside a question of max_question_length="
                f"{self.max_question_length} a sequence of max_length={self.max_length} has room for {room} tokens of "
                "context; overlap by less than that"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class RetrievalTaskConfig(BaseTaskConfig):
    """Find the documents for a query: both are encoded by themselves (two towers, one set of weights)."""

    kind: Literal["retrieval"]
    source: DocsSearchSourceConfig | BeirSourceConfig | SmartSourceConfig | TrecSourceConfig
    query_max_length: int
    pooling: Literal["mean", "cls"]
    similarity: Literal["cosine", "dot"]
    temperature: float
    """Similarities are divided by it in training (in-batch softmax)."""
    hard_negatives: Literal["none", "bm25", "encoder"]
    """Wrong documents that look right, mined before training by BM25 or by the encoder it starts from."""
    num_hard_negatives: int
    """For each query of a batch."""
    query_prefix: str
    document_prefix: str
    """What some public checkpoints were trained with (`query: `, `passage: `)."""
    metric: Literal["ndcg@10", "mrr@10", "recall@100", "map"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RerankingTaskConfig(BaseTaskConfig):
    """Put candidates into a better order: query and candidate are read together (cross-encoder)."""

    kind: Literal["reranking"]
    source: AnswersSourceConfig | DocsSearchSourceConfig | BeirSourceConfig | SmartSourceConfig | TrecSourceConfig
    num_candidates: int
    """Of a collection, the first so many that BM25 finds; a table of answers brings its own."""
    num_negatives: int
    """Wrong candidates taken for each right one in training; 0 takes all."""
    metric: Literal["map", "mrr", "ndcg@10"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SummarisationTaskConfig(BaseTaskConfig):
    """Choose the sentences that sum a document up; each sentence has its own [CLS] (BertSum, arXiv 1903.10318)."""

    kind: Literal["summarisation"]
    source: SummariesSourceConfig
    num_sentences: int
    """Of a summary."""
    metric: Literal["rouge1", "rouge2", "rougeL"]

    def __post_init__(self) -> None:
        BaseTaskConfig.__post_init__(self)
        if self.num_sentences < 1:
            raise ValueError(f"num_sentences must be at least 1, found {self.num_sentences}")
        if self.max_length < 3:
            raise ValueError(f"max_length must leave room for [CLS], a token and [SEP], found {self.max_length}")


@dataclass(frozen=True, kw_only=True, slots=True)
class FillMaskTaskConfig(BaseTaskConfig):
    """How well the pretraining head fills blanks in your text; training goes on with masked language modelling."""

    kind: Literal["fill_mask"]
    source: PlainTextSourceConfig
    top_k: int
    mask_prob: float
    """Share of the tokens that are masked in training. Scoring masks each token once, one at a time."""
    max_scored_tokens: int | None
    """Most tokens that are scored in a row: one forward pass each; None scores all."""
    metric: Literal["top1_accuracy", "topk_accuracy", "negative_log_perplexity"]

    def __post_init__(self) -> None:
        # Not super(): a dataclass with slots is another class than the one that `super` would look for.
        BaseTaskConfig.__post_init__(self)
        for name in ("top_k", "max_scored_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, found {value}")
        if not 0 < self.mask_prob < 1:
            raise ValueError(f"mask_prob must be above 0 and below 1, found {self.mask_prob}")


TaskConfig = (
    ClassificationTaskConfig
    | RegressionTaskConfig
    | TokenClassificationTaskConfig
    | QuestionAnsweringTaskConfig
    | RetrievalTaskConfig
    | RerankingTaskConfig
    | SummarisationTaskConfig
    | FillMaskTaskConfig
)
