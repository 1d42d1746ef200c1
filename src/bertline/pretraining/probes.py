"""Probes: the held-out losses, the guesses for fixed blanks, and what attention heads know of syntax."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from bertline.encoders.head_measures import ALL, Treebank, evenly_spread, halves, head_hits, offset_hits, relations_of
from bertline.encoders.loading import LanguageModel
from bertline.examples.store import Array
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import append_lines
from bertline.foundation.labels import IGNORED_LABEL
from bertline.pretraining.config import HeadProbeConfig, MaskPredictionsConfig
from bertline.pretraining.data import MaskedExamples
from bertline.pretraining.module import PreTrainingLosses
from bertline.pretraining.objectives.base import means, sum_names
from bertline.pretraining.plan import Plan, shuffled
from bertline.tasks.treebank import read_treebank
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import MASK
from bertline.training.devices import Machine, evaluating, sum_over_ranks

_BATCH_TOKENS = 8192


class Probe(Protocol):
    """Measurement before the first step, every `every_steps` steps, and after the last step.

    A probe must not change the model, its mode or the course of training. Probes run on every rank in the same order,
    so they may communicate; only the first rank should write files.
    """

    every_steps: int

    def probe(self, step: int) -> Mapping[str, float]:
        """Measure after `step` finished steps. The returned metrics are written to metrics.jsonl under that step."""


@dataclass
class ValidationProbe(Probe):
    """Measures the losses and metrics of the objective, `val/NAME`, at the length of the current phase.

    The sequences are a fixed random sample of the held-out ones, with the masks of epoch 0 under `examples.seed`: the
    same masks with which the examples stage measured `unigram_entropy`.
    """

    losses: PreTrainingLosses
    """Module being trained; it runs uncompiled here, since the shapes differ from those of training."""
    folder: Path
    plan: Plan
    machine: Machine
    """Device, precision and ranks; the batches are distributed over the ranks."""
    every_steps: int
    max_sequences: int

    def __post_init__(self) -> None:
        objective, lengths = self.losses.objective, self.plan.lengths
        self._examples = MaskedExamples.by_length(self.folder, "validation", lengths, objective)

    def probe(self, step: int) -> dict[str, float]:
        examples = self._examples[self.plan.place(max(0, step - 1)).max_length]
        names = sum_names(self.losses.objective)
        sums = np.zeros(len(names) + 3)
        with evaluating(self.losses, self.machine) as run:
            for batch in self._batches(examples):
                device = self.machine.device
                computed = run({name: torch.from_numpy(values).to(device) for name, values in batch.items()})
                num_targets, num_tokens = (batch["masked_labels"] != IGNORED_LABEL).sum(), batch["attention_mask"].sum()
                num_sequences = len(batch["input_ids"]) // (1 if examples.pairs_together is None else 2)
                values = torch.stack([computed[name] for name in names]).tolist()
                sums += [*values, int(num_targets), num_sequences, int(num_tokens)]
        summed = sum_over_ranks(sums.tolist(), self.machine.device)
        total = dict(zip((*names, "targets", "sequences", "tokens"), summed, strict=True))
        return {f"val/{name}": mean for name, mean in means(self.losses.objective, total).items()}

    def _batches(self, examples: MaskedExamples) -> Iterator[dict[str, np.ndarray]]:
        count, together = min(self.max_sequences, len(examples)), examples.pairs_together or 1
        count -= count % together if count > together else 0  # a smaller group would be easier
        indices = shuffled(np.arange(count), len(examples), seed=examples.seed, epoch=0)
        size = max(1, _BATCH_TOKENS // examples.store.max_length // together) * together
        ranks = self.machine.ranks
        for start in range(size * ranks.rank, count, size * ranks.world_size):
            yield examples.batch(indices[start : start + size], epoch=0)


@dataclass
class MaskPredictionProbe(Probe):
    """Appends frames to `mask_predictions.jsonl`: for each sentence, the most likely tokens at its first blank.

    ConfigError if a sentence is too long for the model.
    """

    model: LanguageModel
    tokenizer: Tokenizer
    config: MaskPredictionsConfig
    path: Path
    machine: Machine
    """Device, precision and ranks; only the first rank writes."""

    def __post_init__(self) -> None:
        self.every_steps = self.config.every_steps
        self._inputs = {sentence: self._encode(sentence) for sentence in self.config.sentences}

    def probe(self, step: int) -> dict[str, float]:
        if self.machine.ranks.is_first and self._inputs:
            rows = [
                {"step": step, "sentence": sentence, "guesses": self._guesses(*inputs)}
                for sentence, inputs in self._inputs.items()
            ]
            append_lines(self.path, [json.dumps(row, ensure_ascii=False) for row in rows])
        return {}

    def _guesses(self, input_ids: Tensor, position: int) -> list[list[Any]]:
        ids = input_ids.to(self.machine.device)
        with evaluating(self.model, self.machine) as run:
            output = run(ids, torch.zeros_like(ids), torch.ones_like(ids), torch.full_like(ids[:, :1], position))
        # Embeddings may be padded: ids behind the tokenizer's stand for nothing.
        logits = output.mlm_logits[0, 0, : self.tokenizer.vocab_size]
        probabilities, guesses = logits.float().softmax(-1).topk(self.config.num_guesses)
        tokens = self.tokenizer.tokens(guesses.tolist())
        return [[token, round(prob, 6)] for token, prob in zip(tokens, probabilities.tolist(), strict=True)]

    def _encode(self, sentence: str) -> tuple[Tensor, int]:
        """Return the sentence as token ids [1, S], and the position of its first blank."""
        tokenizer = self.tokenizer
        ids = tokenizer.single.sequence(tokenizer.encode(sentence.replace(MASK, tokenizer.mask_token)))
        longest = self.model.bert.config.max_position_embeddings
        if len(ids) > longest:
            raise ConfigError(
                f"pretrain.mask_predictions.sentences has one of {len(ids)} tokens, the model has positions for "
                f"{longest}: {sentence!r}. Shorten it."
            )
        return torch.tensor([ids]), ids.index(tokenizer.mask_id)


@dataclass
class HeadProbe(Probe):
    """Measures `probe/heads/RELATION`: how often the best attention head finds the syntactic head, in fp32.

    `mean` is over the relations with 20 words in each half of the sentences, `offset` the mean of the best
    fixed offsets, which no training changes. The first half chooses, the second scores. See arXiv 2309.07311 (Chen et
    al., Sudden Drops in the Loss). Sentences of more than `max_length` tokens are left out.
    """

    model: LanguageModel
    tokenizer: Tokenizer
    config: HeadProbeConfig
    max_length: int
    machine: Machine

    def __post_init__(self) -> None:
        self.every_steps = self.config.every_steps
        used = evenly_spread(read_treebank(Path(self.config.treebank).expanduser()), self.config.max_sentences)
        self.halves = [Treebank.of(part, self.tokenizer, max_length=self.max_length) for part in halves(used)]

    def probe(self, step: int) -> dict[str, float]:
        if not self.machine.ranks.is_first:
            return {}
        encoder, names = self.model.bert, relations_of(*self.halves, min_examples=20)
        with evaluating(encoder, replace(self.machine, precision="fp32")):
            hits = [head_hits(encoder, half, half.batches()) for half in self.halves]
        scores = {name: self._score(hits, name) for name in (*names, ALL) if len(self.halves[1].rows(name))}
        offsets = [self._score([offset_hits(half) for half in self.halves], name) for name in names]
        means = {"mean": [scores[name] for name in names], "offset": offsets} if names else {}
        scores |= {name: float(np.mean(values)) for name, values in means.items()}
        return {f"probe/heads/{name}": value for name, value in scores.items()}

    def _score(self, hits: Sequence[Array], relation: str) -> float:
        first, second = (each[half.rows(relation)].mean(0) for each, half in zip(hits, self.halves, strict=True))
        return float(second[first.argmax()])
