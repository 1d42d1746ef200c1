"""The linear probe: what a linear classifier can read from the encoder's frozen vectors during training.

Only a run with the probe needs scikit-learn.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from bertline.examples.store import Array, ExampleStore
from bertline.foundation.progress import warn
from bertline.modeling.bert import MaskedLanguageModel
from bertline.modeling.heads import pooled
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.plan import Plan
from bertline.pretraining.probing_sentences import KINDS, ProbingSentences, probing_sentences
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine
from bertline.training.evaluating import evaluating
from bertline.training.probe import MakeProbe, Probe

CHANCE = 0.5
"""Chance accuracy of each probe: half of its sentences are corrupted."""

_BATCH_TOKENS_ON_CPU = 2048
"""Measured: 8,192 took 25% longer, 32,768 took 50% longer."""
_BATCH_TOKENS_ON_GPU = 16_384
"""Few kernel launches; the widest activations of BERT-large take 128 MiB in bf16."""
_FEWEST_SENTENCES = 60
"""With fewer sentences, at most 20 are left to score on: too few for a meaningful accuracy."""
_INVERSE_REGULARISATION = 0.1
"""scikit-learn's C for standardised vectors. At 128 channels, 0.01 to 1 gave the same accuracy within 0.3 points."""


class LinearProbe:
    """Measures `probe/bigram_shift_accuracy` and `probe/odd_word_accuracy` on sentences not used for fitting.

    A logistic regression on the mean of the last layer's vectors predicts whether a sentence was corrupted; the encoder
    is frozen. Only the first rank runs it: all ranks have the same weights.

    Args:
        model: Model being trained; its encoder runs uncompiled, since the shapes differ from those of training.
        tokenizer: Tokenizer of the pipeline.
        sentences: See `probing_sentences`.
        machine: Device, precision and ranks.
        every_steps: See `training.probe`.

    References:
        Conneau et al., What you can cram into a single vector (arXiv 1805.01070): the probing tasks.
    """

    def __init__(
        self,
        model: MaskedLanguageModel,
        tokenizer: Tokenizer,
        sentences: ProbingSentences,
        *,
        machine: Machine,
        every_steps: int,
    ) -> None:
        self.every_steps = every_steps
        self._encoder = model.bert
        self._pad_id = tokenizer.pad_id
        self._machine = machine
        self._kinds = sentences.kinds
        self._is_train = np.arange(len(sentences)) < sentences.num_train
        self._ids = [
            [tokenizer.cls_id, *(token for word in sentence for token in word), tokenizer.sep_id]
            for sentence in sentences.sentences
        ]

    def probe(self, step: int) -> dict[str, float]:
        """Measure both accuracies; return nothing if the vectors are not finite, or on other ranks than the first."""
        if not self._machine.ranks.is_first:
            return {}
        vectors = self._vectors()
        if not np.isfinite(vectors).all():
            return {}
        as_is, *corrupted = range(len(KINDS))
        return {f"probe/{KINDS[kind]}_accuracy": self._accuracy(vectors, as_is, kind) for kind in corrupted}

    def keep_up_to(self, step: int) -> None:
        """Do nothing: this probe keeps no records."""

    def _accuracy(self, vectors: Array, as_is: int, corrupted: int) -> float:
        """Fit a classifier on the training sentences and return its accuracy on the test sentences."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        asked = (self._kinds == as_is) | (self._kinds == corrupted)
        train, test = asked & self._is_train, asked & ~self._is_train
        classifier = make_pipeline(
            StandardScaler(), LogisticRegression(C=_INVERSE_REGULARISATION, max_iter=1000, random_state=0)
        )
        classifier.fit(vectors[train], self._kinds[train])
        return float(classifier.score(vectors[test], self._kinds[test]))

    def _vectors(self) -> Array:
        """Return the mean vector of each sentence, [N, H] fp32, in the order of the sentences."""
        vectors = np.empty((len(self._ids), self._encoder.config.hidden_size), dtype=np.float32)
        with evaluating(self._encoder, self._machine) as run:
            for indices, input_ids, attention_mask in self._batches():
                ids, mask = (torch.from_numpy(array).to(self._machine.device) for array in (input_ids, attention_mask))
                hidden_states = run(ids, torch.zeros_like(ids), mask).hidden_states.float()
                vectors[indices] = pooled(hidden_states, mask, "mean").cpu().numpy()
        return vectors

    def _batches(self) -> Iterator[tuple[list[int], Array, Array]]:
        """Yield batches of sentences of similar length: (indices, token ids [B, S], attention mask [B, S])."""
        batch_tokens = _BATCH_TOKENS_ON_CPU if self._machine.device.type == "cpu" else _BATCH_TOKENS_ON_GPU
        by_length = sorted(range(len(self._ids)), key=lambda index: -len(self._ids[index]))
        while by_length:
            longest = len(self._ids[by_length[0]])
            size = max(1, batch_tokens // longest)
            indices, by_length = by_length[:size], by_length[size:]
            input_ids = np.full((len(indices), longest), self._pad_id, dtype=np.int64)
            attention_mask = np.zeros_like(input_ids)
            for row, index in enumerate(indices):
                input_ids[row, : len(self._ids[index])] = self._ids[index]
                attention_mask[row, : len(self._ids[index])] = 1
            yield indices, input_ids, attention_mask


def linear_probes(job: PretrainJob) -> list[MakeProbe]:
    """Return the linear probe configured in `pretrain.linear_probe`, on held-out examples of the run's longest length.

    The list is empty if none is configured or, with a warning, if the held-out text has too few sentences.
    """
    config = job.pretrain.linear_probe
    if config is None:
        return []
    tokenizer = Tokenizer.load(job.tokenizer_folder)
    store = ExampleStore.open(job.examples_folder, "validation", max(Plan.of(job.pretrain).lengths))
    sentences = probing_sentences(store, tokenizer, max_sentences=config.max_sentences)
    if len(sentences) < _FEWEST_SENTENCES:
        warn(
            f"the held-out text has {len(sentences)} sentences to probe the encoder with, fewer than "
            f"{_FEWEST_SENTENCES}: training continues without pretrain.linear_probe."
        )
        return []

    def make(model: MaskedLanguageModel, machine: Machine) -> Probe:
        return LinearProbe(model, tokenizer, sentences, machine=machine, every_steps=config.every_steps)

    return [make]
