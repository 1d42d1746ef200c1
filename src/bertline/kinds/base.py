"""What a kind of task is: one class with its rows, its model, its baselines, its answers to users, and its report.

A kind is one file, `kinds/NAME.py`, with its settings and a subclass of `TaskKind`. What loads torch or scikit-learn is
imported inside methods, so that reading a configuration does not. `run.fingerprints` tells which members a stage's
result depends on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertline.demo.docstrings import ModuleDocs
from bertline.encoding.sequences import INDICES, INPUT_NAMES, Epochs, length_sorted_batches, outputs_of, tensors
from bertline.foundation.labels import IGNORED_LABEL
from bertline.foundation.seeds import generator
from bertline.kinds.html import label_block, ranking_block
from bertline.kinds.inputs import require_pairing
from bertline.kinds.usage import Usage
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.stored_rows import BuiltTask, PairedRows, SplitName, StoredRows, read_rows

# Types for annotations; kinds import them from here.
if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertline.baselines.base import Baseline, BaselineInputs
    from bertline.encoders.loading import Head
    from bertline.kinds.predictor import TaskPredictor
    from bertline.modeling.attention import AttentionKind
    from bertline.tokenization.tokenizer import Tokenizer
    from bertline.training.devices import Machine

TaskRows = TypeVar("TaskRows", bound=StoredRows)
EncodedRows = TypeVar("EncodedRows")
Predictions = TypeVar("Predictions")

Batch = dict[str, "Tensor"]
SOFT_TARGETS, UNLABELLED = "soft_targets", "unlabelled"
"""Keys of a batch of distillation: the teacher's soft targets, and the mark of rows whose labels mean nothing."""
Statistics = NDArray[np.float64]
"""Contribution of each row to the scores, [N, K]."""
Calibration = Mapping[str, float]
"""Values chosen on dev that become part of the model, such as the no-answer threshold."""


def distilled_batches(parts: Sequence[tuple[Epochs, NDArray[np.float32]]], *, seed: int) -> Epochs:
    """Return batches with the teacher's soft targets: those of labelled rows and, marked, of unlabelled ones.

    Each epoch has all batches of both, in an order that depends on the seed and the epoch number. `parts` are the
    batches of labelled rows and of unlabelled ones, if any, each with the soft targets that their `INDICES` count.
    """
    turns = np.repeat(np.arange(len(parts)), [len(batches) for batches, _ in parts])

    def batches(epoch: int) -> Iterator[Batch]:
        batches_of_parts = [batches.of_epoch(epoch) for batches, _ in parts]
        for part in generator(seed, "parts", epoch).permutation(turns):
            batch, soft = next(batches_of_parts[part]), parts[part][1]
            batch |= tensors(**{SOFT_TARGETS: soft[batch[INDICES].numpy()]})
            yield batch if part == 0 else {**batch, **tensors(**{UNLABELLED: np.ones(())})}

    return Epochs(len(turns), 1, batches)


@dataclass(frozen=True, slots=True)
class HeadSettings:
    """Settings of a newly initialized head."""

    dropout_prob: float
    """Dropout probability in the encoder and on the head's input."""
    seed: int
    attention: AttentionKind


@dataclass(frozen=True, slots=True)
class LossOptions:
    """Options of the loss."""

    label_smoothing: float = 0.0
    class_weights: Tensor | None = None
    """Weight of each class [labels], on the model's device; None weights all classes equally."""
    focal_gamma: float = 0.0
    soft_weight: float = 0.0
    """Weight of the loss of soft targets, for batches that have them."""
    soft_temperature: float = 1.0

    def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Compute the mean cross-entropy of logits [B, S, L] over the labels [B, S] that are not `IGNORED_LABEL`."""
        import torch.nn.functional as F

        return F.cross_entropy(
            logits.flatten(0, 1).float(),
            labels.flatten(),
            weight=self.class_weights,
            label_smoothing=self.label_smoothing,
            ignore_index=IGNORED_LABEL,
        )

    def smoothed(self, targets: Tensor) -> Tensor:
        """Move targets of binary decisions, 0 or 1, towards 0.5."""
        return targets * (1 - self.label_smoothing) + self.label_smoothing / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class FileColumns:
    """Columns of an input file; each kind of task reads some of them. `.txt` files have only `text`.

    A column is given by name, or by number from 0 if the file has no header.
    """

    text: str | int = "text"
    text_pair: str | int | None = None
    """Column of the second text, for pair tasks."""
    question: str | int = "question"
    context: str | int = "context"
    query: str | int = "query"
    candidates: str | int = "candidates"
    """Column with a list of texts (in CSV, as JSON)."""


@dataclass(frozen=True, slots=True)
class InputColumn:
    """Input column of a task."""

    name: str | int
    holds: str
    """Type of the values: `text`, `texts` (a list) or `text or texts`."""
    may_be_empty: bool = True


class TaskKind(ABC, Generic[TaskRows, EncodedRows, Predictions]):
    """Kind of a task: reads its rows, makes and trains its model, predicts, scores, and describes what came out.

    The unit of scoring is a row of `TaskRows`: `statistics` returns the contribution of each row to every score, and
    `scores` computes the scores of any set of rows from their statistics, so that intervals and tests can resample rows
    without predicting again.

    `labels` are those of the task's manifest, in order; a task without labels has none.
    """

    config_class: ClassVar[type[BaseTaskConfig]]
    """Settings of a task; its field `kind` has the name under which the kind is registered."""
    rows_class: type[TaskRows]
    right_from: float = 0.5
    """Prediction is an error if its `correct` is less (see `table`)."""
    head: Head
    """Head of the model, whose encoder is the attribute `bert`."""
    outputs: tuple[str, ...] = ()
    """Names of the head's outputs; empty for those of the labels."""
    problem_type: str | None = None
    """`problem_type` of a classifier in config.json."""
    independent: bool = False
    """Whether the outputs are decisions of their own, each with a sigmoid, rather than a choice of one of them."""
    unsmoothed: str = ""
    """Why labels cannot be smoothed; empty where they can."""
    unweighted: str = "it has no classes to weigh"
    """Why `class_weights` cannot be set; empty where `label_counts` counts the classes."""
    score_names: tuple[str, ...]
    """Names of the scores of a task whose statistics are the scores of each row."""

    def __init__(self, config: BaseTaskConfig, labels: Sequence[str]) -> None:
        self.config: Any = config
        self.labels = tuple(labels)

    @classmethod
    def of(cls, config: Any, labels: Sequence[str]) -> TaskKind[Any, Any, Any]:
        """Return the kind of a task; a subclass of the class where the configuration asks for one."""
        return cls(config, labels)

    # ---- rows

    @staticmethod
    @abstractmethod
    def build(name: str, config: Any, modules: Iterable[ModuleDocs] = ()) -> BuiltTask:
        """Read the rows of the source of the task `name`, and split them.

        Args:
            modules: Documentation strings, for the sources of the demo.

        Raises:
            DataError: The data is invalid. The message names file and line, the problem and how to fix it.
        """

    @classmethod
    def stored_rows(cls, task_folder: Path, split: SplitName) -> TaskRows:
        """Read a split from the task's artifact."""
        return read_rows(task_folder, split, cls.rows_class)

    def read(self, task_folder: Path, split: SplitName) -> TaskRows:
        """Read a split from the task's artifact, and what all splits share."""
        return read_rows(task_folder, split, self.rows_class)

    # ---- the model

    @property
    def num_marks(self) -> int:
        """Number of marks that a token's type can carry (`encoding.token_marks`); 0 if tokens are not marked."""
        return 0

    def new_model(self, folder: Path, head: HeadSettings) -> nn.Module:
        """Load the encoder of any folder and add a new head."""
        from bertline.encoders.loading import load_model
        from bertline.encoding.token_marks import add_marked_types

        model: Any = load_model(folder, self.head, is_new=True, **self._of_head, **asdict(head))
        if self.num_marks:
            add_marked_types(model.bert, self.num_marks)
        return model

    def load_model(self, folder: Path, *, attention: AttentionKind = "plain") -> nn.Module:
        """Load a fine-tuned model from a folder that `save_model` wrote."""
        from bertline.encoders.loading import load_model

        return load_model(folder, self.head, attention=attention, **self._of_head)

    def save_model(self, model: nn.Module, folder: Path) -> None:
        """Write config.json and the weights, named as in the Hugging Face class for this kind of task; a linear layer
        on vectors is written beside a sentence encoder."""
        from bertline.encoders.loading import save_model
        from bertline.modeling.heads import BertVectorClassifier
        from bertline.modeling.text_vectors import VectorSettings, write_classifier, write_sentence_transformer

        if isinstance(model, BertVectorClassifier):
            save_model(model.bert, folder)
            vectors = VectorSettings(pooling=model.pooling, similarity="cosine", prompts={}, normalize=True)
            write_sentence_transformer(folder, vectors, max_length=self.config.max_length)
            write_classifier(folder, model.classifier, model.separators)
        elif self.head == "vectors":
            save_model(cast(Any, model).bert, folder)
        else:
            names = dict(enumerate(self.outputs or self.labels))
            save_model(model, folder, id2label=names, problem_type=self.problem_type)

    @property
    def _of_head(self) -> dict[str, Any]:
        """Settings of the head; heads without named outputs have a size of their own."""
        if self.head == "vectors":
            return {"pooling": self.config.pooling}
        return {"num_outputs": len(self.outputs or self.labels) or None}

    def has_new_head(self, model: nn.Module) -> bool:
        """Return whether `new_model` drew random weights, which are meaningless before training."""
        encoder: Any = model.bert
        of_encoder = {id(parameter) for parameter in encoder.parameters()}
        return any(id(parameter) not in of_encoder for parameter in model.parameters())

    # ---- training

    @abstractmethod
    def encode(self, rows: TaskRows, tokenizer: Tokenizer) -> EncodedRows:
        """Encode rows as token ids; long texts are truncated or split into windows here."""

    def lengths(self, encoded: EncodedRows) -> NDArray[np.int64]:
        """Return the number of tokens of each sequence, for choosing the attention kernel and counting tokens."""
        lengths: NDArray[np.int64] = encoded.sequences.lengths  # type: ignore[attr-defined]
        return lengths

    def num_cut(self, encoded: EncodedRows) -> int:
        """Return the number of truncated rows: those that the encoding marks as `cut`, or else its sequences. Splitting
        a text into windows does not truncate it."""
        marked: Any = encoded
        return int((marked.cut if hasattr(marked, "cut") else marked.sequences.cut).sum())

    def num_cut_documents(self, encoded: EncodedRows) -> int | None:
        """Return the number of truncated documents of the task's collection; None for a task without a collection."""
        return None

    def training_batches(self, encoded: EncodedRows, *, batch_size: int, seed: int) -> Epochs:
        """Return training batches, in an order that is a function of the seed and the epoch number."""
        only, make = self.trained_on(encoded), encoded.batch  # type: ignore[attr-defined]
        return length_sorted_batches(self.lengths(encoded), make, batch_size=batch_size, seed=seed, only=only)

    def trained_on(self, encoded: EncodedRows) -> NDArray[np.int64] | None:
        """Return the indices of the sequences that are trained on; None for all."""
        return None

    def loss(self, model: nn.Module, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the mean loss of a batch that is on the model's device: that of its labels and, with a teacher's
        `SOFT_TARGETS`, the weighted sum with theirs; of an `UNLABELLED` batch theirs alone."""
        outputs = self.training_outputs(model, batch)
        if SOFT_TARGETS not in batch:
            return self.hard_loss(model, outputs, batch, options)
        soft = options.soft_weight * self.soft_loss(outputs, batch[SOFT_TARGETS], batch, options.soft_temperature)
        if UNLABELLED in batch:
            return soft
        return soft + (1 - options.soft_weight) * self.hard_loss(model, outputs, batch, options)

    def training_outputs(self, model: nn.Module, batch: Batch) -> Any:
        """Return what the losses of a batch are computed from, by default what the model returns."""
        return model(*(batch[name] for name in INPUT_NAMES))

    @abstractmethod
    def hard_loss(self, model: nn.Module, outputs: Any, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the mean loss of the labels from `training_outputs`; a loss with weights has them in the model."""

    def soft_targets(self, model: nn.Module, encoded: EncodedRows, machine: Machine) -> NDArray[np.float32]:
        """Return what a fine-tuned teacher computes, as `soft_loss` reads it: by default the logits of each sequence,
        [N, L], or of its tokens, [N, S, L]. The `INDICES` of a batch count the first axis."""
        sequences = encoded.sequences  # type: ignore[attr-defined]
        num_outputs = len(self.outputs or self.labels)
        shape = (sequences.input_ids.shape[1], num_outputs) if self.head == "tokens" else (num_outputs,)
        return outputs_of(model, sequences, machine, *shape)

    def soft_loss(self, outputs: Any, teacher: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Compute the mean loss of the teacher's soft targets from `training_outputs`: the divergence of what
        `compared` returns, weighted as the rows of the batch are."""
        from bertline.modeling.losses import sigmoid_divergence, softmax_divergence

        divergence = sigmoid_divergence if self.independent else softmax_divergence
        losses = divergence(*self.compared(outputs, teacher, batch), temperature)
        if "weights" in batch:
            losses = losses.reshape(len(losses), -1).mean(1) * batch["weights"]
        return losses.mean()

    def probabilities(self, logits: Tensor) -> Tensor:
        """Compute the probabilities of the labels from logits [..., L]."""
        return logits.sigmoid() if self.independent else logits.softmax(-1)

    def compared(self, outputs: Any, teacher: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the logits [..., L] of student and teacher whose distributions `soft_loss` compares."""
        return outputs.float(), teacher

    @property
    def unused_options(self) -> dict[str, str]:
        """Loss options that do not apply to this kind of task, with the reasons; setting one is an error."""
        unused = {"label_smoothing": self.unsmoothed, "class_weights": self.unweighted}
        unused["focal_gamma"] = "the focal loss is for classification"
        return {name: why for name, why in unused.items() if why}

    def label_counts(self, rows: TaskRows) -> NDArray[np.int64]:
        """Count the occurrences of each label, for `class_weights`, unless the kind of task is `unweighted`."""
        raise NotImplementedError

    def prepared(self, model: nn.Module, encoded: EncodedRows, rows: TaskRows, machine: Machine) -> EncodedRows:
        """Return the training data after steps that need the untrained model, such as mining hard negatives."""
        return encoded

    # ---- predicting and scoring

    @abstractmethod
    def predict(self, model: nn.Module, encoded: EncodedRows, machine: Machine) -> Predictions:
        """Return the predictions of the model in row order, as NumPy arrays and lists."""

    def calibrate(self, rows: TaskRows, predictions: Predictions) -> Calibration:
        """Choose the calibration on these rows (dev); empty by default."""
        return {}

    @abstractmethod
    def statistics(self, rows: TaskRows, predictions: Predictions, calibration: Calibration) -> Statistics:
        """Return the contribution of each row to the scores, [N, K]."""

    def scores(self, statistics: Statistics) -> dict[str, float]:
        """Compute all scores of the task by name, from the statistics of any rows. Higher is better; includes
        `config.metric`. Without an override they are the means of `score_names`, one column each."""
        return dict(zip(self.score_names, statistics.mean(axis=0).tolist(), strict=True))

    def score(self, statistics: Statistics) -> float:
        """Compute the score that is tuned, `config.metric`."""
        return self.scores(statistics)[self.config.metric]

    def row_scores(self, rows: TaskRows, predictions: Predictions, calibration: Calibration) -> NDArray[np.float64]:
        """Return the tuned score of each row, [N], where the statistics are the columns of `score_names`."""
        return self.statistics(rows, predictions, calibration)[:, self.score_names.index(self.config.metric)]

    @abstractmethod
    def table(self, rows: TaskRows, predictions: Predictions, calibration: Calibration) -> pa.Table:
        """Return a table of the predictions, one line per row, for reading and analysis.

        Returns:
            Columns `id`, the inputs, `gold` and `predicted` (texts), `score` (confidence), and `correct` (bool or, for
            graded correctness, a float up to 1).
        """

    def details(self, rows: TaskRows, predictions: Predictions, calibration: Calibration) -> dict[str, Any]:
        """Return details for the report, as JSON: for example `confusion_matrix`, `by_type` scores, or scores `before`
        re-ranking."""
        return {}

    def is_degenerate(self, rows: TaskRows, predictions: Predictions, calibration: Calibration) -> bool:
        """Return whether the model predicts the same for every row, which marks a failed run (arXiv 2006.04884)."""
        return False

    # ---- what it is compared with

    @abstractmethod
    def baselines(self, inputs: BaselineInputs) -> list[Baseline]:
        """Fit the strongest simple methods on train, and tune them on dev; none depends on a seed."""

    # ---- answers to users

    file_columns: ClassVar[tuple[tuple[str, str], ...]] = (("text", "text"),)
    """Fields of `FileColumns` that a file has, in the order of the arguments of `serve`, and what each holds (see
    `InputColumn`)."""
    may_be_empty: ClassVar[bool] = True
    """Whether an input may be empty."""
    answers: ClassVar[tuple[type, ...]] = ()
    """Classes of what `serve` returns, for the reference."""
    output_schema: pa.Schema
    """Columns that are added to those of an input file."""

    @abstractmethod
    def serve(self, predictor: TaskPredictor, *inputs: Any) -> list[Any]:
        """Return the prediction for each input of a user, in order, by the computation of evaluation.

        Raises:
            DataError: An input has the wrong type.
        """

    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        """Return the columns to read from a file, in the order of the arguments of `serve`."""
        if "text_pair" in dict(self.file_columns):
            require_pairing(self.config, is_pair=columns.text_pair is not None)
        named = [(getattr(columns, name), holds) for name, holds in self.file_columns]
        return [InputColumn(column, holds, self.may_be_empty) for column, holds in named if column is not None]

    def file_outputs(self, predictor: TaskPredictor, *inputs: list[Any]) -> list[dict[str, Any]]:
        """Predict the added columns of some rows of a file."""
        return [self.file_output(predicted) for predicted in self.serve(predictor, *inputs)]

    def file_output(self, predicted: Any) -> dict[str, Any]:
        """Return the added columns of a row from a prediction of `serve`, by default one column of records."""
        return {self.output_schema.names[0]: [each._asdict() for each in predicted]}

    # ---- the report and the model card

    asks: ClassVar[str]
    """What a task asks for, in a sentence."""

    @staticmethod
    def error_block(error: dict[str, Any]) -> str:
        """Return the HTML of an error: a row of `table` without `correct`; by default that of a label or a ranking."""
        return ranking_block(error) if "query" in error else label_block(error)

    @abstractmethod
    def usage(self, calibration: Calibration, *, pair: bool) -> Usage:
        """Return what the model card says of a model; `pair` is whether an input is a pair of texts."""


def list_of(**fields: pa.DataType) -> pa.DataType:
    """Return the type of a column with a list of records in each row."""
    return pa.list_(pa.struct(list(fields.items())))


def paired_columns(rows: PairedRows) -> dict[str, Any]:
    """Return the columns `id`, `text` and `text_pair` of a table of predictions."""
    pairs = pa.nulls(len(rows), pa.string()) if rows.text_pairs is None else rows.text_pairs
    return {"id": rows.ids, "text": rows.texts, "text_pair": pairs}
