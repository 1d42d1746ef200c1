"""The linear probe: what can be read off the encoder's frozen vectors while it learns.

It is handed in by whoever starts a run (`run_pretraining(job, linear_probes(job))`): pretraining itself needs no
scikit-learn.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from bertline.examples.store import Array, ExampleStore
from bertline.foundation.progress import warn
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.heads import pooled
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.plan import Plan
from bertline.pretraining.probing_sentences import KINDS, ProbingSentences, probing_sentences
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine
from bertline.training.evaluating import evaluating
from bertline.training.probe import MakeProbe, Probe

CHANCE = 0.5
"""Of each probe: as many sentences are spoilt as are not."""

_BATCH_TOKENS_ON_CPU = 2048
"""8,192 took a quarter longer, 32,768 half as long again."""
_BATCH_TOKENS_ON_GPU = 16_384
"""Few launches; the widest activations of BERT-large take 128 MiB in bf16."""
_FEWEST_SENTENCES = 60
"""With fewer, 20 or less are left to score on: their accuracy would say nothing."""
_INVERSE_REGULARISATION = 0.1
"""scikit-learn's C on standardised vectors. At 128 channels 0.01 to 1 gave the same within 0.3 points."""


class LinearProbe:
    """Measures `probe/bigram_shift_accuracy` and `probe/odd_word_accuracy` on sentences not fitted on.

    A logistic regression on the mean of the last layer's vectors says whether a sentence was spoilt; the encoder is
    frozen. The first rank does it alone: all ranks have the same weights.

    Args:
        model: The model that is trained; its encoder is run uncompiled, since its shapes differ.
        tokenizer: Of the line.
        sentences: See `probing_sentences`.
        machine: Device, precision, ranks.
        every_steps: See `training.probe`.

    References:
        Conneau et al., What you can cram into a single vector (arXiv 1805.01070): the probing tasks.
    """

    def __init__(
        self,
        model: BertForPreTraining,
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
            [tokenizer.cls_id, *(piece for word in sentence for piece in word), tokenizer.sep_id]
            for sentence in sentences.sentences
        ]

    def probe(self, step: int) -> dict[str, float]:
        """Measure now; nothing where the vectors are no numbers any more."""
        if not self._machine.ranks.is_first:
            return {}
        vectors = self._vectors()
        if not np.isfinite(vectors).all():
            return {}
        as_is, *spoilt = range(len(KINDS))
        return {f"probe/{KINDS[kind]}_accuracy": self._accuracy(vectors, as_is, kind) for kind in spoilt}

    def keep_up_to(self, step: int) -> None:
        """Keeps no records of its own."""

    def _accuracy(self, vectors: Array, as_is: int, spoilt: int) -> float:
        """How often a classifier fitted on the sentences to fit on is right about the others."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        asked = (self._kinds == as_is) | (self._kinds == spoilt)
        train, test = asked & self._is_train, asked & ~self._is_train
        classifier = make_pipeline(
            StandardScaler(), LogisticRegression(C=_INVERSE_REGULARISATION, max_iter=1000, random_state=0)
        )
        classifier.fit(vectors[train], self._kinds[train])
        return float(classifier.score(vectors[test], self._kinds[test]))

    def _vectors(self) -> Array:
        """[N, H] fp32, in the order of the sentences."""
        vectors = np.empty((len(self._ids), self._encoder.config.hidden_size), dtype=np.float32)
        with evaluating(self._encoder, self._machine) as run:
            for indices, input_ids, attention_mask in self._batches():
                ids, mask = (torch.from_numpy(array).to(self._machine.device) for array in (input_ids, attention_mask))
                hidden_states = run(ids, torch.zeros_like(ids), mask).hidden_states.float()
                vectors[indices] = pooled(hidden_states, mask, "mean").cpu().numpy()
        return vectors

    def _batches(self) -> Iterator[tuple[list[int], Array, Array]]:
        """Sentences of about the same length together: (indices, ids [B, S], attention mask [B, S])."""
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
    """The linear probe that `pretrain.linear_probe` asks for, on held-out examples of the run's longest length.

    Where the held-out text has too few sentences there is a warning and no probe.
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
            f"{_FEWEST_SENTENCES}: training goes on without pretrain.linear_probe."
        )
        return []

    def make(model: BertForPreTraining, machine: Machine) -> Probe:
        return LinearProbe(model, tokenizer, sentences, machine=machine, every_steps=config.every_steps)

    return [make]
