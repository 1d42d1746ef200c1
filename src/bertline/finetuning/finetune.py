"""One fine-tuning run: an encoder and labelled rows to a classifier and its scores."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from bertline.finetuning.config import FineTuningConfig
from bertline.finetuning.encoding import EncodedRows, LengthSortedBatches, scoring_batches
from bertline.finetuning.module import FineTuningData, FineTuningModule
from bertline.foundation.seeds import seed_for
from bertline.modeling.attention import choose_attention
from bertline.modeling.bert import BertForSequenceClassification
from bertline.modeling.huggingface import load_classifier
from bertline.modeling.initialization import initialize
from bertline.tasks.metrics import MetricName, score
from bertline.training.config import RuntimeConfig
from bertline.training.devices import Machine
from bertline.training.evaluating import evaluating
from bertline.training.trainer import build_trainer, fit

EncoderWeights = Literal["pretrained", "random"]
_SCORING_BATCH_SIZE = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class FineTuningJob:
    """Everything that decides the outcome of a run, and where it runs."""

    config: FineTuningConfig
    encoder: EncoderWeights
    """`random` keeps the architecture of the folder and draws all weights from the seed."""
    pretrain_folder: Path
    """A Hugging Face folder of any BERT encoder."""
    train: EncodedRows
    dev: EncodedRows
    num_labels: int
    metric: MetricName
    seed: int
    """Root of the classifier's weights, the order of rows and dropout."""
    machine: Machine
    runtime: RuntimeConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class FineTuningResult:
    """What a run gives."""

    model: BertForSequenceClassification
    dev_scores: tuple[float, ...]
    """After each epoch; the last one is the run's."""

    @property
    def dev_score(self) -> float:
        """The dev score of the finished classifier. No epoch is picked, so no choice hides in it."""
        return self.dev_scores[-1]


def fine_tune(job: FineTuningJob, *, on_epoch: Callable[[int, float], None] | None = None) -> FineTuningResult:
    """Train a classifier; the result is a function of the job alone (bitwise on a CPU, for a number of threads).

    Args:
        job: The run.
        on_epoch: Called after each epoch with its number, from 1, and the dev score. What it raises ends the run.
    """
    batches = LengthSortedBatches(job.train, batch_size=job.config.batch_size, seed=job.seed)
    model = _starting_model(job)
    dev_scores: list[float] = []

    def after_epoch(epoch: int) -> None:
        probabilities = predict_probabilities(model, job.dev, job.machine)
        dev_scores.append(score(job.metric, job.dev.labels, probabilities.argmax(axis=1), job.num_labels))
        if on_epoch is not None:
            on_epoch(epoch, dev_scores[-1])

    module = FineTuningModule(
        model,
        job.config,
        num_steps=len(batches) * job.config.num_epochs,
        seed=job.seed,
        after_epoch=after_epoch,
    )
    trainer = build_trainer(
        job.machine,
        job.runtime,
        callbacks=[],
        max_epochs=job.config.num_epochs,
        root=Path(tempfile.gettempdir()),
    )
    fit(trainer, module, FineTuningData(batches))
    return FineTuningResult(model=model, dev_scores=tuple(dev_scores))


def predict_probabilities(
    model: BertForSequenceClassification, rows: EncodedRows, machine: Machine
) -> NDArray[np.float32]:
    """Probabilities of the labels, [N, number of labels], in the order of the rows."""
    probabilities = np.zeros((len(rows), model.classifier.out_features), dtype=np.float32)
    device = next(model.parameters()).device
    with evaluating(model, machine) as forward:
        for indices, batch in scoring_batches(rows, batch_size=_SCORING_BATCH_SIZE):
            inputs = (batch[name].to(device) for name in ("input_ids", "token_type_ids", "attention_mask"))
            probabilities[indices] = torch.softmax(forward(*inputs).float(), dim=-1).cpu().numpy()
    return probabilities


def _starting_model(job: FineTuningJob) -> BertForSequenceClassification:
    longest = int(max(job.train.lengths.max(), job.dev.lengths.max()))
    model = load_classifier(
        job.pretrain_folder,
        num_labels=job.num_labels,
        dropout_prob=job.config.dropout_prob,
        seed=seed_for(job.seed, "classifier"),
        attention=choose_attention(job.runtime.attention, job.machine.device.type, longest),
    )
    if job.encoder == "random":
        initialize(model, model.bert.config, seed=seed_for(job.seed, "encoder"))
    return model.to(job.machine.device)
