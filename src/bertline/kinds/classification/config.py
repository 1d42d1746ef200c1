"""Configuration of a task of the kind `classification`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bertline.demo.config import DocsLibrarySourceConfig, DocsMatchSourceConfig
from bertline.tasks.bad_rows import label_in
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.source_config import HubSourceConfig, TableSourceConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassificationTaskConfig(BaseTaskConfig):
    """Classification of single passages or pairs, with one label per row or any number of labels (`multi_label`)."""

    kind: Literal["classification"]
    source: DocsLibrarySourceConfig | DocsMatchSourceConfig | TableSourceConfig | HubSourceConfig
    labels: tuple[str, ...] | None
    """Labels in order; None takes those of the train split, by value if all are numbers, else by text. A row with
    another label is invalid."""
    multi_label: bool
    """Whether each label is an independent binary decision. Rows may then have no label, and a single label is enough
    if some rows have it and others do not."""
    metric: Literal[
        "accuracy", "balanced_accuracy", "macro_f1", "micro_f1", "matthews", "f1", "f_beta",
        "auroc", "average_precision", "negative_log_loss", "negative_brier_score",
    ]  # fmt: skip
    """Metric on dev that selects trials; higher is better, hence the negative losses. `f1` and `f_beta` are of the
    second of two labels (MRPC, QQP), as are `auroc` and `average_precision`, which are means over more labels."""
    beta: float | None = None
    """Weight of recall relative to precision in `f_beta` (2 favours recall, 0.5 precision); None: it is not scored."""
    threshold_metric: Literal["accuracy", "balanced_accuracy", "macro_f1", "matthews", "f1", "f_beta"] | None = None
    """With two labels: metric on dev that chooses the probability from which on the second is predicted; None predicts
    the likelier. With `multi_label`, `metric` chooses the threshold."""
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
        if self.labels is not None and (
            len(self.labels) < least or len(set(map(label_in, self.labels))) < len(self.labels)
        ):
            raise ValueError(f"labels must be {least} at least, each once, found {list(self.labels)}")
        if self.multi_label and self.metric not in ("accuracy", "macro_f1", "micro_f1"):
            raise ValueError(f"metric {self.metric} is for one label a row; with multi_label take macro_f1 or micro_f1")
        if "f_beta" in (self.metric, self.threshold_metric) and self.beta is None:
            raise ValueError("f_beta needs beta, the weight of recall: 2 favours it, 0.5 favours precision")
        if self.beta is not None and self.beta <= 0:
            raise ValueError(f"beta must be above 0, found {self.beta}")
        if self.threshold_metric is not None and self.multi_label:
            raise ValueError("threshold_metric is for one label a row; with multi_label, metric chooses the threshold")
        self.check_two_labels(self.labels)
        if not self.multi_label and getattr(self.source, "label_separator", None) is not None:
            raise ValueError(
                "source.label_separator is for several labels per row; set multi_label: true or leave it null"
            )
        if self.shared_tokens == "marked" and not self.reads_pairs:
            raise ValueError(
                "shared_tokens: marked is for pairs of texts; name source.text_pair_column, or set shared_tokens: plain"
            )
        # In a pair, the longer text may get only half of the sequence. `Layout.room` is exact.
        if self.long_texts == "windows" and not 0 <= self.window_overlap < (self.max_length - 3) // 2:
            raise ValueError(
                f"window_overlap must be at least 0 and, for long_texts: windows, below half of max_length, found "
                f"{self.window_overlap} with max_length {self.max_length}"
            )

    def check_two_labels(self, labels: Sequence[str] | None) -> None:
        """Raise a ValueError unless there are two labels where a score is of the second; None is not known yet."""
        metric = self.metric if self.metric in ("f1", "f_beta") else None
        for key, value in (("metric", metric), ("threshold_metric", self.threshold_metric)):
            if value is not None and labels is not None and len(labels) != 2:
                raise ValueError(f"{key} {value} is for two labels, found {len(labels)}: {', '.join(labels[:5])}")

    @property
    def reads_pairs(self) -> bool:
        """Whether an input is a pair of texts."""
        return self.source.kind == "docs_match" or getattr(self.source, "text_pair_column", None) is not None
