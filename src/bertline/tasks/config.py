"""Configuration of a task: rows, head and metric. One class for each kind of task."""

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
    """Values to choose from."""

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("values is empty; give at least one")


@dataclass(frozen=True, kw_only=True, slots=True)
class LogUniformSpace:
    """A hyperparameter sampled log-uniformly between two positive bounds."""

    kind: Literal["log_uniform"]
    low: float
    """Lower bound."""
    high: float
    """Upper bound."""

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high:
            raise ValueError(f"log_uniform needs 0 < low < high, found {self.low} and {self.high}")


SpaceConfig = ChoiceSpace | LogUniformSpace


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseTaskConfig:
    """Settings that all kinds of tasks share."""

    max_length: int
    """Maximum number of tokens of a sequence."""
    num_train_rows: int | None
    """Number of rows used for training (questions, sentences or queries, depending on the task); None uses all."""
    label_efficiency_rows: tuple[int, ...]
    """Additional training set sizes at which the best configuration is scored; empty for none."""
    max_dev_rows: int | None
    """Maximum number of dev rows; see `max_test_rows`."""
    max_test_rows: int | None
    """Maximum number of rows of dev, and of each test split. `split_seed` decides which rows are kept; dropped rows are
    counted. None keeps all."""
    dev_fraction: float
    """Fraction of train that becomes dev if the source has no dev."""
    test_fraction: float
    """Fractions of train that become dev or test if the source has no dev or no test."""
    split_seed: int
    """Seed of the hash that assigns rows to splits."""
    start_from: str | None
    """Encoder to fine-tune: None for the pipeline's own, `random` for its architecture with random weights, or any BERT
    checkpoint (`model_type: bert`) as a folder or a hub name with its revision
    (`google-bert/bert-base-uncased@COMMIT`)."""
    num_trials: int | None
    """Number of trials of this task's study; None uses `sweep.num_trials`."""
    space: dict[str, ChoiceSpace | LogUniformSpace]
    """Task-specific search space; each entry replaces the entry of the same name in `sweep.space`."""
    fine_tuning: dict[str, float | int | str | None]
    """Task-specific values for fields of `sweep.fine_tuning`."""

    def __post_init__(self) -> None:
        for name in ("num_train_rows", "max_dev_rows", "max_test_rows", "num_trials", "max_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, found {value}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassificationTaskConfig(BaseTaskConfig):
    """Classification of single passages or pairs, with one label per row or any number of labels (`multi_label`)."""

    kind: Literal["classification"]
    source: DocsLibrarySourceConfig | DocsMatchSourceConfig | TableSourceConfig | HubSourceConfig
    labels: tuple[str, ...] | None
    """Labels in order; None takes the sorted labels of the train split. A row with another label is invalid."""
    multi_label: bool
    """Whether each label is an independent binary decision. Rows may then have no label, and a single label is enough
    if some rows have it and others do not."""
    metric: Literal["accuracy", "macro_f1", "micro_f1", "matthews", "f1"]
    """Metric on dev that selects trials; higher is better. `f1` is the F1 of the second of two labels (MRPC, QQP)."""
    long_texts: Literal["truncate", "windows"]
    """`windows` splits a long text into overlapping windows and pools their probabilities."""
    window_overlap: int
    """Number of tokens that consecutive windows share."""
    window_pooling: Literal["mean", "max"]
    """Pooling of the probabilities of the windows of a text."""
    calibration: Literal["none", "temperature"]
    """`temperature` divides the logits by a temperature that maximizes the likelihood of dev (Guo et al. 2017, arXiv
    1706.04599, section 4.2). In single-label tasks the predicted label stays the same."""
    shared_tokens: Literal["plain", "marked"]
    """`marked` (pairs only) gives tokens that match the other text, wholly or in part, token types of their own. It
    helps a small encoder in tasks where overlap matters. Outside bertline, the token types have to be set as the model
    card describes."""

    def __post_init__(self) -> None:
        BaseTaskConfig.__post_init__(self)
        # With several labels per row, a single label is still a binary decision.
        least = 1 if self.multi_label else 2
        if self.labels is not None and (len(self.labels) < least or len(set(self.labels)) < len(self.labels)):
            raise ValueError(f"labels must be {least} at least, each once, found {list(self.labels)}")
        if self.multi_label and self.metric in ("matthews", "f1"):
            raise ValueError(f"metric {self.metric} is for one label a row; with multi_label take macro_f1 or micro_f1")
        if not self.multi_label and getattr(self.source, "label_separator", None) is not None:
            raise ValueError(
                "source.label_separator is for several labels per row; set multi_label: true or leave it null"
            )
        if self.shared_tokens == "marked" and not self.reads_pairs:
            raise ValueError(
                "shared_tokens: marked is for pairs of texts; name source.text_pair_column, or set shared_tokens: plain"
            )
        # In a pair, the longer text may get only half of the sequence.
        if self.long_texts == "windows" and not 0 <= self.window_overlap < (self.max_length - 3) // 2:
            raise ValueError(
                f"window_overlap must be at least 0 and, for long_texts: windows, below half of max_length, found "
                f"{self.window_overlap} with max_length {self.max_length}"
            )

    @property
    def reads_pairs(self) -> bool:
        """Whether an input is a pair of texts."""
        return self.source.kind == "docs_match" or getattr(self.source, "text_pair_column", None) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class RegressionTaskConfig(BaseTaskConfig):
    """Regression of a number for a passage or, more often, of the similarity of two passages."""

    kind: Literal["regression"]
    source: TableSourceConfig | HubSourceConfig
    low: float
    """Lowest number of the scale; see `high`."""
    high: float
    """Bounds of the scale (STS-B: 0 to 5). A row with a number outside it is invalid."""
    head: Literal["linear", "cosine"]
    """`linear`: a linear layer on [CLS] of both texts in one sequence. `cosine`: cosine similarity of the pooled
    vectors of separately encoded texts."""
    pooling: Literal["mean", "cls"]
    """Pooling of the `cosine` head."""
    metric: Literal["pearson", "spearman"]
    """Metric on dev that selects trials; higher is better."""

    def __post_init__(self) -> None:
        BaseTaskConfig.__post_init__(self)
        if not self.low < self.high:
            raise ValueError(f"low must be below high, found {self.low} and {self.high}")
        if self.head == "cosine" and self.source.text_pair_column is None:
            raise ValueError("head cosine compares two texts; name source.text_pair_column, or take head: linear")
        if getattr(self.source, "label_separator", None) is not None:
            raise ValueError("source.label_separator is for several labels per row; a regression task has one number")


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenClassificationTaskConfig(BaseTaskConfig):
    """Tagging of words, such as names of people, places or parameters, with IOB2 tags (`O`, `B-TYPE`, `I-TYPE`)."""

    kind: Literal["token_classification"]
    source: DocsParametersSourceConfig | ConllSourceConfig
    head: Literal["softmax", "crf"]
    """`softmax` scores each word by itself, `crf` whole tag sequences (conditional random field)."""
    word_logits: Literal["first", "mean"]
    """Logits of a word: those of its first token (paper, section 5.3), or the mean over its tokens in the window from
    which it is predicted."""
    word_case: Literal["plain", "marked"]
    """`marked` shows a lower-casing encoder which words have capitals, through separate token types."""
    outside_margin: Literal["none", "dev"]
    """`dev` (softmax only) predicts O only if its logit exceeds that of the best tag by a margin, which is tuned for
    the metric on dev. Most words are O, so plain argmax misses entities."""
    window_overlap: int
    """Number of tokens that consecutive windows of a sentence longer than `max_length` share."""
    metric: Literal["entity_f1"]
    """Metric on dev that selects trials; higher is better."""

    def __post_init__(self) -> None:
        BaseTaskConfig.__post_init__(self)
        if self.outside_margin == "dev" and self.head == "crf":
            raise ValueError("outside_margin: dev is for head: softmax; a CRF decides on whole label sequences")
        room = self.max_length - 2  # [CLS] and [SEP]
        if not 0 <= self.window_overlap < room:
            raise ValueError(
                f"window_overlap must be at least 0 and below the {room} tokens that a window of max_length="
                f"{self.max_length} holds besides [CLS] and [SEP], found {self.window_overlap}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionAnsweringTaskConfig(BaseTaskConfig):
    """Extractive question answering: the answer is a span of the context, or none if the data has such questions."""

    kind: Literal["question_answering"]
    source: SquadSourceConfig
    window_overlap: int
    """Number of context tokens that consecutive windows share (BERT's `doc_stride` counts the others)."""
    max_question_length: int
    """Maximum length of a question in tokens; longer questions are truncated at the end."""
    max_answer_length: int
    """Maximum length of an answer in tokens."""
    metric: Literal["f1", "exact_match"]
    """Metric on dev that selects trials; higher is better."""

    def __post_init__(self) -> None:
        BaseTaskConfig.__post_init__(self)
        for name, least in (("window_overlap", 0), ("max_question_length", 1), ("max_answer_length", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, found {getattr(self, name)}")
        room = self.max_length - self.max_question_length - 3  # [CLS] and two [SEP]
        if self.window_overlap >= room:
            raise ValueError(
                f"window_overlap is {self.window_overlap}, but next to a question of max_question_length="
                f"{self.max_question_length} a sequence of max_length={self.max_length} has room for {room} tokens of "
                "context; overlap by less than that"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class RetrievalTaskConfig(BaseTaskConfig):
    """Retrieval of documents for a query; both are encoded separately (bi-encoder with shared weights)."""

    kind: Literal["retrieval"]
    source: DocsSearchSourceConfig | BeirSourceConfig | SmartSourceConfig | TrecSourceConfig
    query_max_length: int
    """Maximum number of tokens of a query."""
    pooling: Literal["mean", "cls"]
    """Pooling of the token vectors of a text."""
    similarity: Literal["cosine", "dot"]
    """Similarity of query and document vectors."""
    temperature: float
    """Temperature of the in-batch softmax in training; similarities are divided by it."""
    hard_negatives: Literal["none", "bm25", "encoder"]
    """Source of hard negatives, mined before training: BM25, or the encoder that training starts from."""
    num_hard_negatives: int
    """Number of hard negatives per query of a batch."""
    query_prefix: str
    """Prefix of queries; see `document_prefix`."""
    document_prefix: str
    """Prefixes of queries and documents that some public checkpoints were trained with (`query: `, `passage: `)."""
    metric: Literal["ndcg@10", "mrr@10", "recall@100", "map"]
    """Metric on dev that selects trials; higher is better."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RerankingTaskConfig(BaseTaskConfig):
    """Re-ranking of candidates; query and candidate are encoded together (cross-encoder)."""

    kind: Literal["reranking"]
    source: AnswersSourceConfig | DocsSearchSourceConfig | BeirSourceConfig | SmartSourceConfig | TrecSourceConfig
    num_candidates: int
    """Number of candidates per query from a collection: the first BM25 results. A table of answers has its own."""
    num_negatives: int
    """Number of negatives per positive candidate in training; 0 uses all."""
    metric: Literal["map", "mrr", "ndcg@10"]
    """Metric on dev that selects trials; higher is better."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SummarisationTaskConfig(BaseTaskConfig):
    """Extractive summarisation: select sentences; each sentence has its own [CLS] (BertSum, arXiv 1903.10318)."""

    kind: Literal["summarisation"]
    source: SummariesSourceConfig
    num_sentences: int
    """Number of sentences of a summary."""
    metric: Literal["rouge1", "rouge2", "rougeL"]
    """Metric on dev that selects trials; higher is better."""

    def __post_init__(self) -> None:
        BaseTaskConfig.__post_init__(self)
        if self.num_sentences < 1:
            raise ValueError(f"num_sentences must be at least 1, found {self.num_sentences}")
        if self.max_length < 3:
            raise ValueError(f"max_length must leave room for [CLS], a token and [SEP], found {self.max_length}")


@dataclass(frozen=True, kw_only=True, slots=True)
class FillMaskTaskConfig(BaseTaskConfig):
    """Masked language modelling on the user's text: fine-tunes and scores the pretraining head."""

    kind: Literal["fill_mask"]
    source: PlainTextSourceConfig
    top_k: int
    """Number of guesses among which the token must be, for `topk_accuracy`."""
    mask_prob: float
    """Fraction of the tokens masked in training. Scoring masks each token once, one at a time."""
    max_scored_tokens: int | None
    """Maximum number of tokens scored per row, with one forward pass each; None scores all."""
    metric: Literal["top1_accuracy", "topk_accuracy", "negative_log_perplexity"]
    """Metric on dev that selects trials; higher is better."""

    def __post_init__(self) -> None:
        # Not super(): `slots=True` creates a new class, and zero-argument super() refers to the original one.
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
