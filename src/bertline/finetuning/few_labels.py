"""Methods for few labels: a linear layer on the vectors of a sentence encoder, which stays frozen or is adapted.

A head on the first position starts from random weights, and a few dozen rows do not teach it. Vectors of a sentence
encoder tell texts apart before any training; contrast moves those of one label together first (SetFit, arXiv
2209.11055, section 3, with all pairs of a batch at once). Both end in a logistic regression.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from bertline.encoders.loading import load_model
from bertline.encoding.sequences import Epochs, outputs_of, tensors
from bertline.finetuning.job import FineTuningJob, starting_model
from bertline.finetuning.module import train
from bertline.foundation.seeds import generator
from bertline.kinds.base import INPUT_NAMES, Batch, HeadSettings, LossOptions
from bertline.kinds.classification import Classification, EncodedTexts
from bertline.modeling.checkpoint import Checkpoint
from bertline.modeling.heads import BertVectorClassifier
from bertline.modeling.losses import pair_similarity_loss
from bertline.tokenization.tokenizer import Tokenizer

_NEVER = -1e4
BATCH_SIZE = 32
_NUM_LENGTHS = 3
"""Number of groups of a batch: a step is 13 % (short questions) to 30 % (reviews) faster than in one."""
_SHARE_OF_RATE = 0.25
"""Learning rate of contrast, as a share of that of a new head: at the whole of it vectors forget what rows lack."""
STEPS = 40
"""Number of steps of contrast, for 16 rows as for 384: more of them are seldom better (`notebooks/LOG.md`)."""
_STRENGTH_ADAPTED = 10.0
_STRENGTHS = (0.1, 1.0, 10.0, 100.0)
_RIDGES = np.logspace(-2, 3, 11)
_CHOOSING_ROWS = 2_000
"""Maximum number of rows from which the strength of the regression is chosen: it hardly depends on more."""


class TextsAsVectors(Classification):
    """Texts as vectors of length 1, trained by contrast; the classifier is put on them afterwards."""

    num_steps: int

    def new_model(self, folder: Path, head: HeadSettings) -> nn.Module:
        checkpoint = Checkpoint.open(folder)
        pooling = checkpoint.pooling
        encoder: Any = load_model(
            checkpoint, "vectors", pooling=pooling, dropout_prob=head.dropout_prob, attention=head.attention
        )
        return BertVectorClassifier(encoder.bert, pooling=pooling, classifier=nn.Identity())

    def training_batches(self, encoded: EncodedTexts, *, batch_size: int, seed: int) -> Epochs:
        """Return one epoch of batches with at least two sequences of each of their labels, where there are two."""
        labels = encoded.labels[encoded.row_of]
        members = [np.flatnonzero(labels == label) for label in np.unique(labels)]

        def batches(epoch: int) -> Iterator[Batch]:
            for step in range(self.num_steps):
                random = generator(seed, "contrast", epoch, step)
                chosen = [members[place] for place in random.permutation(len(members))[: batch_size // 2]]
                share = batch_size // len(chosen)
                indices = np.concatenate([random.permutation(of_label)[:share] for of_label in chosen])
                yield {**encoded.sequences.batch(indices), **tensors(labels=labels[indices])}

        return Epochs(self.num_steps, 1, batches)

    def training_outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return vectors [B, H], computed by groups of about one length: the texts of a batch are of all lengths."""
        lengths = batch["attention_mask"].sum(dim=1)
        order = lengths.argsort()
        vectors = [
            model(*(batch[name][group, : lengths[group].max()] for name in INPUT_NAMES))
            for group in order.chunk(_NUM_LENGTHS)
        ]
        return torch.cat(vectors)[order.argsort()]

    def hard_loss(self, model: nn.Module, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the contrastive loss of vectors [B, H]."""
        return pair_similarity_loss(outputs.float(), batch["labels"])


def vector_classifier(job: FineTuningJob) -> BertVectorClassifier:
    """Return a classifier on vectors of the encoder, which for the method `contrastive` is adapted first.

    The word embeddings stay as they are, and nothing is dropped: with few rows both cost accuracy.
    """
    kind = TextsAsVectors(job.kind.config, job.kind.labels)
    num_layers = Checkpoint.open(job.encoder_folder).config.num_hidden_layers
    config = replace(
        job.config, learning_rate=_SHARE_OF_RATE * job.config.learning_rate, num_epochs=1, batch_size=BATCH_SIZE,
        dropout_prob=0.0, trained_layers=num_layers, reinitialized_layers=0, early_stopping_epochs=None, fewest_steps=0,
    )  # fmt: skip
    adapting = replace(job, kind=kind, config=config, dev=None, checks=(), most_steps=None)
    model: Any = starting_model(adapting)
    encoded: Any = job.train.encoded
    kind.num_steps = STEPS
    if job.most_steps is not None:  # of batches of the usual size
        kind.num_steps = min(STEPS, max(job.most_steps * job.config.batch_size // BATCH_SIZE, 1))
    if job.config.method == "contrastive" and np.bincount(encoded.labels).max() > 1:
        train(adapting, model, None)
    exact = replace(job.machine, precision="fp32")
    if job.config.method == "frozen" and job.train.rows.text_pairs is not None:  # contrast reads a pair as one text
        model.separators = Tokenizer.load(job.encoder_folder).pair.between
    vectors = outputs_of(model, encoded.sequences, exact, model.bert.config.hidden_size * (1 + bool(model.separators)))
    if job.kind.problem_type == "regression":
        model.classifier = _regression(vectors, encoded.targets, is_of_pairs=bool(model.separators))
        return model.to(job.machine.device)
    strengths = _STRENGTHS if job.config.method == "frozen" else (_STRENGTH_ADAPTED,)  # rows were adapted to
    weights = (1 / encoded.num_windows)[encoded.row_of]
    balanced = "balanced" if job.config.class_weights == "balanced" else None
    model.classifier = _classifier(
        vectors, encoded.labels[encoded.row_of], weights, len(kind.labels), strengths, class_weight=balanced
    ).to(job.machine.device)
    return model


def _regression(vectors: NDArray[np.float32], targets: NDArray[np.float32], *, is_of_pairs: bool) -> nn.Linear:
    """Fit ridge regression, its strength chosen by the rows left out one at a time; of pairs the cosine, the sum of
    their product, is a feature too, so that few rows need not find it."""
    size = vectors.shape[1]
    layer = nn.Linear(size, 1)
    is_product = np.arange(size) >= (size // 2 if is_of_pairs else size)
    with threadpool_limits(1):
        cosines = vectors @ is_product.astype(np.float32)
        fitted = RidgeCV(_RIDGES).fit(np.column_stack([vectors, cosines]), targets)
    with torch.no_grad():
        layer.weight[0] = torch.tensor(fitted.coef_[:-1] + fitted.coef_[-1] * is_product)
        layer.bias.fill_(float(fitted.intercept_))
    return layer


def _classifier(
    vectors: NDArray[np.float32],
    labels: NDArray[np.int64],
    weights: NDArray[np.float64],
    num_labels: int,
    strengths: tuple[float, ...],
    **options: Any,
) -> nn.Linear:
    """Fit logistic regression on vectors [N, H] with one weight each, its strength chosen by cross-validation."""

    def fitted(strength: float, rows: Any) -> Any:
        regression = LogisticRegression(C=strength, max_iter=1000, **options)
        return regression.fit(vectors[rows], labels[rows], weights[rows])

    known, counts = np.unique(labels[:_CHOOSING_ROWS], return_counts=True)
    layer = nn.Linear(vectors.shape[1], num_labels)
    with threadpool_limits(1):  # sums do not depend on the number of cores
        strength = strengths[len(strengths) // 2]
        if len(strengths) > 1 and len(known) > 1 and counts.min() > 1:
            folds = StratifiedKFold(min(5, counts.min()), shuffle=True, random_state=0)
            held_out = [*folds.split(vectors[:_CHOOSING_ROWS], labels[:_CHOOSING_ROWS])]

            def loss(strength: float) -> float:
                return sum(
                    log_loss(labels[rest], fitted(strength, rows).predict_proba(vectors[rest]), labels=known)
                    for rows, rest in held_out
                )

            strength = min(strengths, key=loss)
        known = np.unique(labels)
        coefficients, intercepts = np.zeros((1, vectors.shape[1])), np.zeros(1)
        if len(known) > 1:
            regression = fitted(strength, slice(None))
            coefficients, intercepts = regression.coef_, regression.intercept_
    if len(known) == 2:  # scikit-learn has one vector for two labels; half of it for each has the same softmax
        coefficients, intercepts = (np.concatenate([-each, each]) / 2 for each in (coefficients, intercepts))
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.fill_(_NEVER)  # of labels that train does not have
        layer.weight[known] = torch.tensor(coefficients, dtype=torch.float32)
        layer.bias[known] = torch.tensor(intercepts, dtype=torch.float32)
    return layer
