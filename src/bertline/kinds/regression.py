"""Regression of a number for a text or a pair: one output on the pooled [CLS], or the cosine of two text vectors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertline.demo.docstrings import ModuleDocs
from bertline.encoding.sequences import Epochs, Sequences, encode_texts, length_sorted_batches, outputs_of, tensors
from bertline.kinds.base import Batch, Calibration, LossOptions, Statistics, TaskKind, paired_columns
from bertline.kinds.html import inputs_of, plain, quote
from bertline.kinds.inputs import row_ids, texts_and_pairs
from bertline.kinds.usage import Usage
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.metrics.correlation import pearson, spearman
from bertline.tasks.source_config import HubSourceConfig, TableSourceConfig
from bertline.tasks.source_files import stored, with_row_limits
from bertline.tasks.stored_rows import BuiltTask, NumberRows
from bertline.tasks.table_source import ANumber, read_table, table_versions

if TYPE_CHECKING:
    from bertline.kinds.base import Baseline, BaselineInputs, Head, Machine, TaskPredictor, Tensor, Tokenizer, nn

# Fraction of the scale: predictions within a smaller range count as equal.
_DEGENERATE_SPREAD = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class RegressionTaskConfig(BaseTaskConfig):
    """Regression of a number for a passage or, more often, of the similarity of two passages."""

    kind: Literal["regression"]
    source: TableSourceConfig | HubSourceConfig
    low: float
    """Lowest number of the scale; see `high`."""
    high: float
    """Bounds of the scale (STS-B: 0 to 5). A row with a number outside it is invalid. Infinite for a checkpoint from
    elsewhere, whose output is the number itself."""
    head: Literal["linear", "cosine"]
    """`linear`: a linear layer on [CLS] of both texts in one sequence. `cosine`: cosine similarity of the pooled
    vectors of separately encoded texts."""
    pooling: Literal["mean", "cls"]
    """Pooling of the `cosine` head."""
    metric: Literal["pearson", "spearman"]
    """Metric on dev that selects trials; higher is better."""

    def check(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"low must be below high, found {self.low} and {self.high}")
        if self.head == "cosine" and self.source.text_pair_column is None:
            raise ValueError("head cosine compares two texts; name source.text_pair_column, or take head=linear")
        if getattr(self.source, "label_separator", None) is not None:
            raise ValueError("source.label_separator is for several labels per row; a regression task has one number")


@dataclass(frozen=True, slots=True)
class EncodedNumbers:
    """Encoded rows with their target numbers."""

    sequences: Sequences
    """N sequences; for the cosine head 2 N: all first texts, then all second texts."""
    targets: NDArray[np.float32]
    """Target numbers [N], scaled from 0 (the task's `low`) to 1 (its `high`)."""


class Regression(TaskKind[NumberRows, EncodedNumbers, NDArray[np.float64]]):
    """Regression of one number per row. Predictions are [N], on the task's scale.

    The `linear` head is trained with squared error on targets scaled to [0, 1]; its predictions are clipped to the
    scale. The `cosine` head has no weights: each text is encoded separately, the cosine of the two vectors is trained
    with squared error towards the scaled target (arXiv 1908.10084, section 3, regression objective), and a prediction
    is `low + (high - low) * cosine`, which keeps the order and may be below `low`.
    """

    config_class = RegressionTaskConfig
    rows_class = NumberRows
    config: RegressionTaskConfig
    outputs = ("number",)
    problem_type = "regression"
    unsmoothed = "it has numbers, and no labels to smooth"
    file_columns = (("text", "text"), ("text_pair", "text"))
    output_schema = pa.schema([("predicted", pa.float64())])
    asks = "Regression: which number does a text, or a pair of texts, have?"

    @staticmethod
    def build(name: str, config: RegressionTaskConfig, modules: Iterable[ModuleDocs] = ()) -> BuiltTask:
        rows_of_splits, dropped = read_table(
            config.source, config, lambda pattern, separator, names: ANumber(config.low, config.high, pattern)
        )
        splits = {
            split: stored(NumberRows, rows, np.array([row.label for row in rows], dtype=np.float64))
            for split, rows in with_row_limits(rows_of_splits, config, dropped).items()
        }
        return BuiltTask(
            splits={**splits},
            dropped=dropped,
            versions=table_versions(config.source),
            targets={split: {(f"{number:g}",) for number in rows.numbers.tolist()} for split, rows in splits.items()},
            more={"pair": splits["train"].text_pairs is not None},
        )

    # ---- the model

    @property
    def head(self) -> Head:  # type: ignore[override]
        return "vectors" if self.config.head == "cosine" else "sequence"

    @property
    def _scale(self) -> tuple[float, float]:
        """Number for which the model's output is 0, and how much more it is where the output is 1."""
        return (0.0, 1.0) if math.isinf(self.config.high) else (self.config.low, self.config.high - self.config.low)

    def encode(self, rows: NumberRows, tokenizer: Tokenizer) -> EncodedNumbers:
        max_length = self.config.max_length
        if self.config.head == "cosine":
            texts = [*rows.texts, *(rows.text_pairs or ())]
            sequences = encode_texts(texts, None, tokenizer, max_length=max_length)
        else:
            sequences = encode_texts(rows.texts, rows.text_pairs, tokenizer, max_length=max_length)
        low, width = self._scale
        return EncodedNumbers(sequences, ((rows.numbers - low) / width).astype(np.float32))

    def num_cut(self, encoded: EncodedNumbers) -> int:
        texts_of_a_row = np.split(encoded.sequences.cut, 2 if self.config.head == "cosine" else 1)
        return int(np.any(texts_of_a_row, axis=0).sum())

    def training_batches(self, encoded: EncodedNumbers, *, batch_size: int, seed: int) -> Epochs:
        """Return batches of rows; for the cosine head, a batch has all first texts, then all second texts."""
        num_rows = len(encoded.targets)
        lengths = encoded.sequences.lengths.reshape(-1, num_rows).max(axis=0)

        def make(rows: NDArray[np.integer]) -> Batch:
            indices = rows if len(encoded.sequences) == num_rows else np.concatenate([rows, rows + num_rows])
            return {**encoded.sequences.batch(indices), **tensors(targets=encoded.targets[rows])}

        return length_sorted_batches(lengths, make, batch_size=batch_size, seed=seed)

    def training_outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the scaled number of each row, [B]."""
        import torch.nn.functional as F

        outputs: Tensor = super().training_outputs(model, batch).float()
        if self.config.head == "cosine":
            return F.cosine_similarity(*outputs.chunk(2), dim=-1)
        return outputs.squeeze(-1)

    def hard_loss(self, model: nn.Module, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        import torch.nn.functional as F

        return F.mse_loss(outputs, batch["targets"])

    def soft_targets(self, model: nn.Module, encoded: EncodedNumbers, machine: Machine) -> NDArray[np.float32]:
        low, width = self._scale
        return ((self.predict(model, encoded, machine) - low) / width).astype(np.float32)

    def soft_loss(self, outputs: Tensor, teacher: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Compute the mean squared error towards the teacher's numbers; no temperature softens them."""
        import torch.nn.functional as F

        return F.mse_loss(outputs, teacher)

    def predict(self, model: nn.Module, encoded: EncodedNumbers, machine: Machine) -> NDArray[np.float64]:
        is_cosine = self.config.head == "cosine"
        width = model.bert.config.hidden_size if is_cosine else 1
        outputs = outputs_of(model, encoded.sequences, machine, width).astype(np.float64)
        if is_cosine:
            first, second = outputs.reshape(2, len(encoded.targets), -1)
            norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
            shares = (first * second).sum(axis=1) / np.maximum(norms, 1e-12)
        else:
            shares = outputs[:, 0] if math.isinf(self.config.high) else outputs[:, 0].clip(0.0, 1.0)
        low, span = self._scale
        return low + span * shares

    def statistics(self, rows: NumberRows, predictions: NDArray[np.float64], calibration: Calibration) -> Statistics:
        """Return gold and predicted number, [N, 2]."""
        return np.stack([rows.numbers, predictions], axis=1)

    def scores(self, statistics: Statistics) -> dict[str, float]:
        gold, predicted = statistics.T
        return {"pearson": pearson(gold, predicted), "spearman": spearman(gold, predicted)}

    def table(self, rows: NumberRows, predictions: NDArray[np.float64], calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`. Regression has no confidence: `score` is the absolute error as a fraction of the scale,
        and `correct` is 1 minus it."""
        distances = np.abs(predictions - rows.numbers) / self._scale[1]
        return pa.table(
            {
                **paired_columns(rows),
                "gold": [f"{number:.3f}" for number in rows.numbers],
                "predicted": [f"{number:.3f}" for number in predictions],
                "score": distances,
                "correct": 1 - distances,
                "gold_number": rows.numbers,
                "predicted_number": predictions,
            }
        )

    def details(self, rows: NumberRows, predictions: NDArray[np.float64], calibration: Calibration) -> dict[str, Any]:
        """Return `mean_absolute_error` on the task's scale; lower is better."""
        return {"mean_absolute_error": float(np.abs(predictions - rows.numbers).mean())}

    def is_degenerate(self, rows: NumberRows, predictions: NDArray[np.float64], calibration: Calibration) -> bool:
        return bool(np.ptp(predictions) < _DEGENERATE_SPREAD * self._scale[1])

    # ---- baselines, answers to users, report

    def baselines(self, inputs: BaselineInputs) -> list[Baseline]:
        """Return the mean of train and ridge regressions on n-grams, on what a pair shares and on vectors."""
        from bertline.baselines.linear import RIDGES
        from bertline.baselines.vectors import text_baselines
        from bertline.linear.model import Clipped

        mean = float(inputs.train.numbers.mean())
        fitted = text_baselines(
            inputs,
            lambda rows: rows.numbers,
            ("ridge regression", "ridge regression"),
            ngrams=RIDGES,
            overlap=RIDGES,
            overlap_and_words=RIDGES,
            vectors=RIDGES,
            vector_setting="features",
            finished=Clipped(self.config.low, self.config.high),
        )
        return [inputs.baseline("mean", "mean of train", lambda rows: np.full(len(rows), mean)), *fitted]

    def serve(
        self, predictor: TaskPredictor, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> list[float]:
        firsts, seconds = texts_and_pairs(self.config, texts, text_pairs)
        if not firsts:
            return []
        unknown = np.zeros(len(firsts), dtype=np.float64)
        return predictor.predictions(NumberRows(row_ids(len(firsts)), firsts, seconds, unknown)).tolist()

    def file_output(self, predicted: float) -> dict[str, Any]:
        return {"predicted": predicted}

    @staticmethod
    def error_block(error: dict[str, Any]) -> str:
        return quote(inputs_of(error), f"is {plain(error['gold'])}, taken for {plain(error['predicted'])}")

    def usage(self, calibration: Calibration, *, pair: bool) -> Usage:
        from bertline.modeling.text_vectors import VectorSettings

        config = self.config
        scale = f"from {config.low:g} to {config.high:g}"
        texts = '["One text."], ["Another text."]' if pair else '["One text."]'
        ours = f'import bertline\n\nbertline.load("NAME").predict({texts})'
        if config.head == "cosine":
            return Usage(
                what=f"Says how alike two texts are, {scale}, by the cosine of their vectors.",
                tag="sentence-similarity",
                pipeline=True,
                snippets=(
                    f'{ours}\nbertline.load("NAME").embed(["One text.", "Another text."])  # one vector each',
                    "from sentence_transformers import SentenceTransformer\n\n"
                    '# "NAME" is the folder that this file lies in.\nmodel = SentenceTransformer("NAME")\n'
                    'model.similarity(*model.encode(["One text.", "Another text."]))  # the cosine itself',
                ),
                vectors=VectorSettings(pooling=config.pooling, similarity="cosine", prompts={}),
                limits=("What counts as alike is what the annotators of its training pairs took it for.",),
            )
        return Usage(
            what=f"Gives a text, or a pair of texts, a number {scale}.",
            tag="text-classification",
            pipeline=True,
            snippets=(ours,),
            limits=(
                "Without bertline the output is a number of about 0 to 1, which bertline cuts and puts on the scale.",
            ),
        )
