"""Classification of texts and pairs, with one label or any number of labels: a linear layer on the pooled [CLS]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bertline.demo.config import DocsLibrarySourceConfig, DocsMatchSourceConfig, DocsSourceConfig
from bertline.demo.docstrings import ModuleDocs
from bertline.demo.tasks import docs_library_rows, docs_match_rows
from bertline.encoding.sequences import (
    Epochs,
    Sequences,
    any_of,
    encode_texts,
    encode_windows,
    length_sorted_batches,
    outputs_of,
    tensors,
)
from bertline.encoding.token_marks import NUM_MATCHES, with_shared_marked
from bertline.foundation.bad_rows import BadRows
from bertline.foundation.checked import NonNegativeInt, PositiveFloat
from bertline.foundation.errors import ConfigError, DataError
from bertline.foundation.labels import ordered_labels
from bertline.foundation.progress import warn
from bertline.kinds.base import Batch, Calibration, LossOptions, Statistics, TaskKind, list_of, paired_columns
from bertline.kinds.inputs import row_ids, texts_and_pairs
from bertline.kinds.usage import Usage, code_span
from bertline.tasks.cells import label_in
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.metrics import classification as metrics
from bertline.tasks.source_config import HubSourceConfig, TableSourceConfig
from bertline.tasks.source_files import (
    LabelledRow,
    LabelledSplits,
    WithId,
    no_rows,
    num_rows_made,
    stored,
    with_row_limits,
)
from bertline.tasks.stored_rows import BuiltTask, MultiLabelRows, SplitName, TextRows, read_rows
from bertline.tasks.table_source import OneLabel, SeveralLabels, read_table, table_versions

if TYPE_CHECKING:
    from bertline.kinds.base import Baseline, BaselineInputs, Machine, TaskPredictor, Tensor, Tokenizer, nn

Probabilities = NDArray[np.float32]
"""[N, labels]."""
THRESHOLD = "threshold"
"""Calibration key of the threshold: labels (of two, the second) with at least this probability are predicted."""
_DEFAULT_THRESHOLD = 0.5
# Sorted by distance to 0.5, so that ties go to the threshold nearest to it.
_THRESHOLDS = tuple(sorted((step / 20 for step in range(1, 20)), key=lambda t: (abs(t - _DEFAULT_THRESHOLD), t)))
_PROBABILITIES = list_of(label=pa.string(), probability=pa.float64())


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
    beta: PositiveFloat | None = None
    """Weight of recall relative to precision in `f_beta` (2 favours recall, 0.5 precision); None: it is not scored."""
    threshold_metric: Literal["accuracy", "balanced_accuracy", "macro_f1", "matthews", "f1", "f_beta"] | None = None
    """With two labels: metric on dev that chooses the probability from which on the second is predicted; None predicts
    the likelier. With `multi_label`, `metric` chooses the threshold."""
    long_texts: Literal["truncate", "windows"]
    """`windows` (single texts only) splits a long text into overlapping windows and averages their probabilities."""
    window_overlap: NonNegativeInt
    """Number of tokens that consecutive windows share."""
    shared_tokens: Literal["plain", "marked"]
    """`marked` (pairs only) gives tokens that match the other text, wholly or in part, token types of their own. It
    helps a small encoder in tasks where overlap matters. Only bertline sets these token types."""

    def check(self) -> None:
        # With several labels per row, a single label is still a binary decision.
        check_labels(self.labels, least=1 if self.multi_label else 2)
        if self.multi_label and self.metric not in ("accuracy", "macro_f1", "micro_f1"):
            raise ValueError(f"metric {self.metric} is for one label a row; with multi_label take macro_f1 or micro_f1")
        if "f_beta" in (self.metric, self.threshold_metric) and self.beta is None:
            raise ValueError("f_beta needs beta, the weight of recall: 2 favours it, 0.5 favours precision")
        if self.threshold_metric is not None and self.multi_label:
            raise ValueError("threshold_metric is for one label a row; with multi_label, metric chooses the threshold")
        self.check_two_labels(self.labels)
        for key in () if self.multi_label else ("label_separator", "label_columns"):
            if getattr(self.source, key, None) is not None:
                raise ValueError(f"source.{key} is for several labels per row; set multi_label=true or leave it null")
        if self.shared_tokens == "marked" and not self.reads_pairs:
            raise ValueError(
                "shared_tokens=marked is for pairs of texts; name source.text_pair_column, or set shared_tokens=plain"
            )
        if self.long_texts == "windows" and self.reads_pairs:
            raise ValueError("long_texts=windows is for single texts; pairs are truncated (long_texts=truncate)")
        if self.long_texts == "windows" and self.window_overlap >= (room := self.max_length - 2):
            raise ValueError(
                f"window_overlap is {self.window_overlap}, but a sequence of max_length={self.max_length} has room for "
                f"{room} tokens of text; overlap by less than that"
            )

    def check_two_labels(self, labels: Sequence[str] | None) -> None:
        """Raise a ValueError unless there are two labels where a score is of the second; None is not known yet."""
        metric = self.metric if self.metric in ("f1", "f_beta") else None
        for key, value in (("metric", metric), ("threshold_metric", self.threshold_metric)):
            if value is not None and labels is not None and len(labels) != 2:
                raise ValueError(f"{key} {value} is for two labels, found {len(labels)}: {', '.join(labels[:5])}")


def check_labels(labels: Sequence[str] | None, *, least: int) -> None:
    """Raise a ValueError unless there are at least so many labels, each once; None is not known yet."""
    if labels is not None and (len(labels) < least or len(set(map(label_in, labels))) < len(labels)):
        raise ValueError(f"labels must be {least} at least, each once, found {list(labels)}")


class Prediction(NamedTuple):
    """Predicted label of a text."""

    label: str
    probability: float
    probabilities: dict[str, float]
    """Probability of each label, in label order."""


class LabelsPrediction(NamedTuple):
    """Predicted labels of a text, from a multi-label classifier."""

    labels: tuple[str, ...]
    """Labels that reach the threshold, in label order; may be empty."""
    probabilities: dict[str, float]
    """Probability of each label; they do not sum to 1."""


@dataclass(frozen=True, slots=True)
class EncodedTexts:
    """N encoded rows with their labels; each row has one sequence, or several windows that follow each other."""

    sequences: Sequences
    row_starts: NDArray[np.int64]
    """Index of the first sequence of each row [N]."""
    labels: NDArray[np.int64]
    """Label ids [N], or 0 and 1 for each label [N, L]."""

    @property
    def row_of(self) -> NDArray[np.int64]:
        """Row of each sequence [W]."""
        return np.repeat(np.arange(len(self.row_starts)), self.num_windows)

    @property
    def num_windows(self) -> NDArray[np.int64]:
        """Number of sequences of each row [N]."""
        return np.diff(self.row_starts, append=len(self.sequences))

    @property
    def cut(self) -> NDArray[np.bool_]:
        """Whether any sequence of the row was truncated [N]."""
        return any_of(self.sequences.cut, np.append(self.row_starts, len(self.sequences)))


class Classification(TaskKind[Any, EncodedTexts, Probabilities]):
    """Gives a text, or a pair of texts, one of some labels (paper, section 4.1); `MultiLabel` gives any number.

    A long text is truncated or split into windows (`long_texts`). In training, each window has the label of its row and
    is weighted by one over the number of the row's windows, so that a long text counts as much as a short one. In
    prediction, the probabilities of a row's windows are averaged (arXiv 1905.09217, section 3). A text that fits is one
    window, encoded as with truncation.
    """

    config_class = ClassificationTaskConfig
    config: ClassificationTaskConfig
    rows_class: type[Any] = TextRows
    output_schema = pa.schema({"predicted": pa.string(), "probability": pa.float64(), "probabilities": _PROBABILITIES})
    head = "sequence"
    unused_options: ClassVar[dict[str, str]] = {}
    file_columns = (("text", "text"), ("text_pair", "text"))
    answers = (Prediction, LabelsPrediction)
    asks = "Classification: which label does a text, or a pair of texts, have?"

    @classmethod
    def of(cls, config: Any, labels: Sequence[str]) -> TaskKind[Any, Any, Any]:
        return MultiLabel(config, labels) if config.multi_label else cls(config, labels)

    @classmethod
    def stored_rows(cls, task_folder: Path, split: SplitName) -> Any:
        file = task_folder / f"{split}.parquet"
        several = file.exists() and pa.types.is_list(pq.read_schema(file).field("labels").type)
        return read_rows(task_folder, split, MultiLabelRows if several else TextRows)

    @staticmethod
    def build(name: str, config: ClassificationTaskConfig, modules: Iterable[ModuleDocs] = ()) -> BuiltTask:
        splits, dropped = _labelled_splits(config, modules)
        labels = _label_names(name, config, splits, dropped)
        try:
            config.check_two_labels(labels)
        except ValueError as error:
            raise DataError(f"tasks.{name}: {error}. Take another metric, or name two labels.") from error
        known = BadRows(getattr(config.source, "on_bad_row", "error"))
        splits = with_known_labels(f"tasks.{name}", splits, labels, known)
        splits = with_row_limits(splits, config, dropped)
        return BuiltTask(
            splits={split: _stored(rows, labels, config.multi_label) for split, rows in splits.items()},
            labels=tuple(labels),
            dropped=dropped + known.dropped,
            versions={} if isinstance(config.source, DocsSourceConfig) else table_versions(config.source),
            targets={split: {tuple(sorted(row.label)) for row in rows} for split, rows in splits.items()},
            more={
                "pair": any(row.text_pair is not None for row in splits["train"]),
                "labels_by_split": counts_of_labels(splits, labels),
            },
        )

    # ---- the model

    @property
    def num_marks(self) -> int:
        return NUM_MATCHES if self.config.shared_tokens == "marked" else 0

    def encode(self, rows: Any, tokenizer: Tokenizer) -> EncodedTexts:
        config = self.config
        if config.long_texts == "windows":
            sequences, row_starts = encode_windows(
                rows.texts, tokenizer, max_length=config.max_length, overlap=config.window_overlap
            )
        else:
            sequences = encode_texts(rows.texts, rows.text_pairs, tokenizer, max_length=config.max_length)
            row_starts = np.arange(len(rows))
        if config.shared_tokens == "marked":
            sequences = with_shared_marked(sequences, tokenizer)
        return EncodedTexts(sequences, row_starts, rows.labels)

    def training_batches(self, encoded: EncodedTexts, *, batch_size: int, seed: int) -> Epochs:
        """Return batches of windows with their rows' `labels` and `weights` [B], whose mean over all windows is 1."""
        row_of, num_windows = encoded.row_of, encoded.num_windows
        # Not normalized per batch: windows of long texts all have the same length and share batches.
        weights = (1 / num_windows * num_windows.mean())[row_of].astype(np.float32)

        def make(indices: NDArray[np.integer]) -> Batch:
            return {
                **encoded.sequences.batch(indices),
                **tensors(labels=encoded.labels[row_of[indices]], weights=weights[indices]),
            }

        return length_sorted_batches(encoded.sequences.lengths, make, batch_size=batch_size, seed=seed)

    def hard_loss(self, model: nn.Module, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute cross-entropy or focal loss; with class weights, the mean is weighted, as in PyTorch."""
        import torch.nn.functional as F

        from bertline.modeling.losses import focal_factor

        logits = outputs.float()
        losses = F.cross_entropy(
            logits,
            batch["labels"],
            weight=options.class_weights,
            label_smoothing=options.label_smoothing,
            reduction="none",
        )
        if options.focal_gamma:
            log_probabilities = logits.log_softmax(-1).gather(1, batch["labels"][:, None])[:, 0]
            losses = losses * focal_factor(log_probabilities, options.focal_gamma)
        total = (losses * batch["weights"]).sum()
        return total / (len(losses) if options.class_weights is None else options.class_weights[batch["labels"]].sum())

    def predict(self, model: nn.Module, encoded: EncodedTexts, machine: Machine) -> Probabilities:
        of_windows = outputs_of(model, encoded.sequences, machine, len(self.labels), read=self.probabilities)
        if len(encoded.row_starts) == len(of_windows):
            return of_windows
        sums = np.add.reduceat(of_windows, encoded.row_starts, axis=0)
        return (sums / encoded.num_windows[:, None]).astype(np.float32)

    def given(self, predictions: Probabilities, calibration: Calibration) -> NDArray[np.int64]:
        """Return the predicted labels [N]: the likeliest or, of two, the second from the threshold of dev on."""
        if THRESHOLD not in calibration:
            return predictions.argmax(axis=1)
        return (predictions[:, 1].astype(np.float64) >= calibration[THRESHOLD]).astype(np.int64)

    def label_counts(self, rows: TextRows) -> NDArray[np.int64]:
        return np.bincount(rows.labels, minlength=len(self.labels))

    def calibrate(self, rows: TextRows, predictions: Probabilities) -> Calibration:
        if (metric := self.config.threshold_metric) is None:
            return {}

        def score(matrix: NDArray[np.integer]) -> float:
            return self.scores_of_matrix(matrix)[metric]

        return {THRESHOLD: metrics.best_threshold(rows.labels, predictions[:, 1], score)}

    def statistics(self, rows: TextRows, predictions: Probabilities, calibration: Calibration) -> Statistics:
        """Return gold label, predicted label and the probability of each label, [N, 2 + L]."""
        return np.column_stack((rows.labels, self.given(predictions, calibration), predictions)).astype(np.float64)

    def scores(self, statistics: Statistics) -> dict[str, float]:
        """See `scores_of` and `PROBABILITY_SCORES`; macro F1 is over the labels that the rows have."""
        gold, probabilities = statistics[:, 0].astype(np.int64), statistics[:, 2:]
        of_probabilities = {name: of(gold, probabilities) for name, of in metrics.PROBABILITY_SCORES.items()}
        return {**self._of_labels(statistics), **of_probabilities}

    def score(self, statistics: Statistics) -> float:
        """See `TaskKind.score`; the others, which cost more, are left out, as a verdict asks for hundreds."""
        if (of := metrics.PROBABILITY_SCORES.get(self.config.metric)) is not None:
            return of(statistics[:, 0].astype(np.int64), statistics[:, 2:])
        return self._of_labels(statistics)[self.config.metric]

    def _of_labels(self, statistics: Statistics) -> dict[str, float]:
        gold, predicted = statistics[:, :2].astype(np.int64).T
        return self.scores_of_matrix(metrics.confusion_matrix(gold, predicted, len(self.labels)))

    def scores_of_matrix(self, matrix: NDArray[np.integer]) -> dict[str, float]:
        """Compute the scores of labels from the number of rows [gold labels, predicted labels]."""
        return {**metrics.scores_of(matrix, beta=self.config.beta), "macro_f1": metrics.macro_f1(matrix, of_gold=True)}

    def details(self, rows: TextRows, predictions: Probabilities, calibration: Calibration) -> dict[str, Any]:
        """Return `confusion_matrix` (rows: gold labels) and `calibration_error` of the predicted labels."""
        given = self.given(predictions, calibration)
        sure = self.confidences(predictions, given)
        return {
            "confusion_matrix": metrics.confusion_matrix(rows.labels, given, len(self.labels)).tolist(),
            "calibration_error": metrics.expected_calibration_error(sure, given == rows.labels),
        }

    def is_degenerate(self, rows: TextRows, predictions: Probabilities, calibration: Calibration) -> bool:
        given = self.given(predictions, calibration)
        return bool((given == given[0]).all())

    def table(self, rows: TextRows, predictions: Probabilities, calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`; `score` is the probability of the predicted label or, of several, the lowest confidence
        among the row's label decisions. Adds the probability of each label."""
        given = self.given(predictions, calibration)
        of_labels = {f"probability_{label}": predictions[:, i] for i, label in enumerate(self.labels)}
        return pa.table(
            {
                **paired_columns(rows),
                "gold": [", ".join(self.names(labels)) for labels in rows.labels],
                "predicted": [", ".join(self.names(labels)) for labels in given],
                "score": self.confidences(predictions, given).astype(np.float64),
                "correct": (given == rows.labels).reshape(len(rows), -1).all(axis=1),
                **of_labels,
            }
        )

    def names(self, given: Any) -> tuple[str, ...]:
        return (self.labels[given],)

    def confidences(self, predictions: Probabilities, given: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.take_along_axis(predictions, given[:, None], axis=1)[:, 0]

    # ---- baselines, answers to users, report

    def baselines(self, inputs: BaselineInputs) -> list[Baseline]:
        """Return the shares of the labels in train, for every row, and linear models on n-grams, on what a pair shares
        and on an encoder's vectors."""
        from bertline.baselines.linear import NAIVE_BAYES, REGRESSIONS, SVMS, LinearModel
        from bertline.baselines.vectors import MODELS, UNIT_MODELS, text_baselines

        shares = (self.label_counts(inputs.train) / max(len(inputs.train), 1)).astype(np.float32)
        title = "most frequent labels" if self.config.multi_label else "most frequent label"
        fitted = text_baselines(
            inputs,
            lambda rows: rows.labels,
            ("linear model", "logistic regression"),
            ngrams=SVMS if self.config.multi_label else SVMS + NAIVE_BAYES,
            overlap=REGRESSIONS,
            overlap_and_words=[LinearModel("logistic_regression", c) for c in (0.1, 1.0)],
            vectors=MODELS,
            unit_vectors=UNIT_MODELS,
        )
        return [inputs.baseline("majority", title, lambda rows: np.tile(shares, (len(rows), 1))), *fitted]

    def serve(
        self, predictor: TaskPredictor, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> list[Any]:
        firsts, seconds = texts_and_pairs(self.config, texts, text_pairs)
        if not firsts:
            return []
        unread = np.zeros((len(firsts), len(self.labels)), dtype=np.int64)
        probabilities = predictor.predictions(self.rows_class(row_ids(len(firsts)), firsts, seconds, unread))
        given = self.given(probabilities, predictor.calibration)
        return [
            self.served(of_row, dict(zip(self.labels, row.tolist(), strict=True)))
            for of_row, row in zip(given, probabilities, strict=True)
        ]

    def served(self, given: Any, probabilities: dict[str, float]) -> Any:
        (label,) = self.names(given)
        return Prediction(label, probabilities[label], probabilities)

    def file_output(self, predicted: Any) -> dict[str, Any]:
        return {"predicted": predicted.label, "probability": predicted.probability}

    def file_outputs(self, predictor: TaskPredictor, *inputs: list[Any]) -> list[dict[str, Any]]:
        """See `TaskKind.file_outputs`; lists the labels with their probabilities, most likely first."""
        rows = []
        for predicted in self.serve(predictor, *inputs):
            ordered = sorted(predicted.probabilities.items(), key=lambda each: -each[1])[: predictor.num_probabilities]
            listed = [{"label": label, "probability": probability} for label, probability in ordered]
            rows.append({**self.file_output(predicted), "probabilities": listed})
            if predictor.lowest_probability is not None:
                rows[-1]["label_set"] = predictor.label_set(predicted.probabilities)
        return rows

    def usage(self, calibration: Calibration, *, pair: bool) -> Usage:
        labels, threshold = self.labels, calibration.get(THRESHOLD)
        marked = self.config.shared_tokens == "marked"
        inputs = '["One text."], ["The text to compare."]' if pair else '["One text.", "Another text."]'
        theirs = '{"text": "One text.", "text_pair": "The text to compare."}' if pair else '"One text."'
        several = ', top_k=None, function_to_apply="sigmoid"' if self.config.multi_label else ""
        texts, named = "pairs of texts" if pair else "texts", ", ".join(map(code_span, labels))
        limits = ["The probabilities have not been calibrated."]
        if self.config.multi_label:
            what = f"Gives {texts} any number of {len(labels)} labels: {named}."
            limits.append(f"A label is given from a probability of {threshold or 0.5:g} on (`task.json`).")
        else:
            what = f"Sorts {texts} into {len(labels)} classes: {named}."
            limits.append("Every input gets one of the labels above, also one that fits none of them.")
            if threshold is not None:
                limits.append(
                    f"bertline predicts {code_span(labels[1])} from a probability of {threshold:.3g} on, which dev "
                    "chose (`task.json`); transformers and ONNX, whose probabilities are the same, from 0.5 on."
                )
        if self.config.long_texts == "windows":
            limits.append("bertline reads a long text in overlapping windows; transformers cuts it instead.")
        if marked:
            limits.append(
                "The model reads which tokens match the other text, in their `token_type_ids`, which only bertline "
                "sets; without them the scores mean little."
            )
        by_bertline = f'import bertline\n\nbertline.load("NAME").predict({inputs})'
        by_transformers = (
            'from transformers import pipeline\n\n# "NAME" is the folder that this file lies in.\n'
            f'classify = pipeline("text-classification", model="NAME")\nclassify({theirs}{several})'
        )
        return Usage(
            what=what,
            tag="text-classification",
            pipeline=not marked,
            snippets=((by_bertline,) if marked else (by_transformers, by_bertline)),
            limits=tuple(limits),
        )


class MultiLabel(Classification):
    """Classification with any number of labels per row, each decided independently.

    Labels that reach a threshold are predicted: 0.5, unless `calibrate` finds a better one on dev.
    """

    rows_class = MultiLabelRows
    problem_type = "multi_label_classification"
    independent = True
    output_schema = pa.schema(
        {"predicted": pa.list_(pa.string()), "probability": pa.list_(pa.float64()), "probabilities": _PROBABILITIES}
    )

    def hard_loss(self, model: nn.Module, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute binary cross-entropy or focal loss, averaged over labels (by class weights, if any) and rows.

        Smoothing moves targets towards 0.5.
        """
        import torch
        import torch.nn.functional as F

        from bertline.modeling.losses import focal_factor

        logits = outputs.float()
        targets = options.smoothed(batch["labels"].to(logits.dtype))
        losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        if options.focal_gamma:
            log_probabilities = F.logsigmoid(torch.where(batch["labels"] == 1, logits, -logits))
            losses = losses * focal_factor(log_probabilities, options.focal_gamma)
        if options.class_weights is None:
            by_row = losses.mean(dim=1)
        else:
            by_row = losses @ options.class_weights / options.class_weights.sum()
        return (by_row * batch["weights"]).sum() / len(by_row)

    def label_counts(self, rows: Any) -> NDArray[np.int64]:
        """See `TaskKind.label_counts`; a row counts once for each of its labels."""
        return rows.labels.sum(axis=0)

    def calibrate(self, rows: Any, predictions: Probabilities) -> Calibration:
        """Choose the threshold with the best score; 0.5 if no other is better."""

        def score(threshold: float) -> float:
            return self.score(self.statistics(rows, predictions, {THRESHOLD: threshold}))

        return {THRESHOLD: max(_THRESHOLDS, key=score)}

    def given(self, predictions: Probabilities, calibration: Calibration) -> NDArray[np.int64]:
        return (predictions >= calibration.get(THRESHOLD, _DEFAULT_THRESHOLD)).astype(np.int64)

    def statistics(self, rows: Any, predictions: Probabilities, calibration: Calibration) -> Statistics:
        """Return gold labels, then predicted labels, 0 or 1 each, [N, 2 L]."""
        return np.concatenate([rows.labels, self.given(predictions, calibration)], axis=1).astype(np.float64)

    def scores(self, statistics: Statistics) -> dict[str, float]:
        """See `metrics.classification.multi_label_scores`; macro F1 is over the labels that the rows have."""
        gold, given = np.split(statistics.astype(np.int64), 2, axis=1)
        has_rows = gold.any(axis=0)
        macro_f1 = metrics.multi_label_scores(gold[:, has_rows], given[:, has_rows])["macro_f1"]
        return {**metrics.multi_label_scores(gold, given), "macro_f1": macro_f1}

    def score(self, statistics: Statistics) -> float:
        return self.scores(statistics)[self.config.metric]

    def names(self, given: Any) -> tuple[str, ...]:
        return tuple(label for label, has in zip(self.labels, given, strict=True) if has)

    def confidences(self, predictions: Probabilities, given: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.where(given == 1, predictions, 1 - predictions).min(axis=1)

    def details(self, rows: Any, predictions: Probabilities, calibration: Calibration) -> dict[str, Any]:
        """Return `by_label` (F1, precision, recall, number of rows) and `calibration_error` over all labels."""
        given = self.given(predictions, calibration)
        counts = np.stack([(rows.labels & given).sum(axis=0), given.sum(axis=0), rows.labels.sum(axis=0)], axis=1)
        return {
            "by_label": metrics.scores_by_label(counts, self.labels, support="rows"),
            "calibration_error": metrics.expected_calibration_error(predictions.ravel(), rows.labels.ravel() == 1),
        }

    def served(self, given: Any, probabilities: dict[str, float]) -> Any:
        return LabelsPrediction(self.names(given), probabilities)

    def file_output(self, predicted: Any) -> dict[str, Any]:
        return {
            "predicted": list(predicted.labels),
            "probability": [predicted.probabilities[label] for label in predicted.labels],
        }


_Splits = LabelledSplits[tuple[str, ...]]


def _labelled_splits(config: ClassificationTaskConfig, modules: Iterable[ModuleDocs]) -> tuple[_Splits, Counter[str]]:
    """Return the rows of each split with their labels as tuples, of length 1 in single-label tasks."""
    if config.multi_label:
        if not isinstance(config.source, TableSourceConfig | HubSourceConfig):
            raise ConfigError(f"multi_label: a source of kind {config.source.kind} has one label a row. Set it false.")
        return read_table(config.source, config, SeveralLabels)
    num_rows, seed = num_rows_made(config), config.split_seed
    match config.source:
        case DocsLibrarySourceConfig():
            splits, dropped = docs_library_rows(modules, config.source, num_train_rows=num_rows, seed=seed)
        case DocsMatchSourceConfig():
            splits, dropped = docs_match_rows(modules, config.source, num_train_rows=num_rows, seed=seed)
        case TableSourceConfig() | HubSourceConfig():
            splits, dropped = read_table(config.source, config, OneLabel)
        case _:
            assert_never(config.source)
    return {
        split: [LabelledRow(row.id, row.text, row.text_pair, (row.label,), row.cluster) for row in rows]
        for split, rows in splits.items()
    }, dropped


def _label_names(name: str, config: ClassificationTaskConfig, splits: _Splits, dropped: Counter[str]) -> list[str]:
    train = splits["train"]
    if config.multi_label and max((len(row.label) for row in train), default=2) < 2:
        advice = "With several in a cell, give source.label_separator; with one a row, set multi_label=false."
        warn(f"tasks.{name}: no train row has two labels. {advice}")
    if config.labels is not None:
        return list(map(label_in, config.labels))
    labels = list(ordered_labels(label for row in train for label in row.label))
    if not labels:
        problem = f"tasks.{name}: no train row has a label. Is source.label_column the right column?"
        raise DataError(problem if train else no_rows(name, "train", dropped))
    if "nan" in map(str.lower, labels):
        warn(f"tasks.{name}: a label is 'nan', as pandas writes a missing cell. Remove such rows, or rename the label.")
    # A wrong label column (numbers, free text) would otherwise give thousands of classes.
    num_rows = sum(len(splits[split]) for split in ("train", "dev", "test"))
    if len(train) > 20 and len(labels) > num_rows / 2:
        raise DataError(
            f"tasks.{name}: the {num_rows} rows have {len(labels)} different labels ({labels[0]!r}, "
            f"{labels[1]!r}, ...). Is source.label_column the right column?"
        )
    return labels


def counts_of_labels(splits: Mapping[SplitName, list[WithId]], labels: Sequence[str]) -> dict[str, dict[str, int]]:
    """Count the labels (`label`) of the rows of each split, in the order of the labels."""
    counts = {split: Counter(label for row in rows for label in row.label) for split, rows in splits.items()}
    return {split: {label: of_split[label] for label in labels} for split, of_split in counts.items()}


def with_known_labels(
    task: str, splits: Mapping[SplitName, Sequence[WithId]], labels: Sequence[str], bad_rows: BadRows
) -> dict[SplitName, list[WithId]]:
    """Return the rows whose labels (`label`) are all among these, and report the others."""
    known = set(labels)
    for split, rows in splits.items():
        for row in rows:
            if unknown := [label for label in row.label if label not in known]:
                bad_rows.report(
                    "unknown_label",
                    f"{task}, {split} row {row.id}: the label is {unknown[0]!r}.",
                    f"Allowed are {', '.join(map(repr, labels))}. Fix the row or add the label to the task's labels. "
                    "(A split without labels cannot be scored: set its file, source.dev_file or source.test_file, to "
                    "null, and it is cut from train.)",
                )
    bad_rows.end()
    return {split: [row for row in rows if known.issuperset(row.label)] for split, rows in splits.items()}


def _stored(
    rows: list[LabelledRow[tuple[str, ...]]], labels: list[str], multi_label: bool
) -> TextRows | MultiLabelRows:
    if multi_label:
        matrix = np.array([[label in row.label for label in labels] for row in rows], dtype=np.int64)
        return stored(MultiLabelRows, rows, matrix.reshape(-1, len(labels)))
    numbers = {label: number for number, label in enumerate(labels)}
    return stored(TextRows, rows, np.array([numbers[row.label[0]] for row in rows], dtype=np.int64))
