"""Probes of every run: the held-out losses, the best step so far, and the guesses for fixed blanks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from bertline.encoders.loading import LanguageModel
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import append_lines, read_json_lines, write_atomically
from bertline.foundation.labels import IGNORED_LABEL
from bertline.foundation.metrics_log import MetricsLog
from bertline.pretraining.config import MaskPredictionsConfig
from bertline.pretraining.data import MaskedExamples
from bertline.pretraining.health import DivergenceGuard
from bertline.pretraining.module import PreTrainingLosses, PretrainingModule
from bertline.pretraining.objectives.base import means, sum_names
from bertline.pretraining.plan import Plan, shuffled
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import MASK
from bertline.training.clock import TrainingClock
from bertline.training.devices import Machine, sum_over_ranks
from bertline.training.probe import DueProbes, Probe, evaluating

_BATCH_TOKENS = 8192


@dataclass(kw_only=True, eq=False)
class Probing(pl.Callback):
    """Runs the probes that are due before the first step and after a step, and logs what they measure."""

    due: DueProbes
    metrics_log: MetricsLog  # Lightning gives each callback an attribute `log`
    clock: TrainingClock
    guard: DivergenceGuard
    """After a failure nothing is measured."""

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Run the probes of a new run."""
        if module.finished_steps == 0:
            self._run(module)

    def on_train_batch_end(self, trainer: pl.Trainer, module: PretrainingModule, *batch: Any) -> None:
        """Run the probes that are due."""
        if self.guard.failure is None:
            self._run(module)

    def _run(self, module: PretrainingModule) -> None:
        step = module.finished_steps
        if due := self.due.after(step):
            with self.clock.paused():
                metrics = {key: value for probe in due for key, value in probe.probe(step).items()}
            if metrics and module.machine.ranks.is_first:
                self.metrics_log.log(step, metrics)


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
    """Largest number of sequences to validate on."""

    def __post_init__(self) -> None:
        objective, lengths = self.losses.objective, self.plan.lengths
        self._examples = MaskedExamples.by_length(self.folder, "validation", lengths, objective)

    def probe(self, step: int) -> dict[str, float]:
        """Measure the losses and metrics."""
        examples = self._examples[self.plan.place(max(0, step - 1)).max_length]
        names = sum_names(self.losses.objective)
        sums = np.zeros(len(names) + 3)
        with evaluating(self.losses, self.machine) as run:
            for batch in self._batches(examples):
                computed = run(
                    {name: torch.from_numpy(values).to(self.machine.device) for name, values in batch.items()}
                )
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
class BestStep(Probe):
    """Runs the validation probe and records the step after which the held-out loss was lowest.

    Losses at different sequence lengths are not comparable: when a phase changes the length, the search starts over.
    The measurement before the first step does not count; nothing has been trained at that point.
    """

    validation: Probe
    """Probe that measures the loss, with the same result on every rank."""
    plan: Plan
    judged_by: str
    record: dict[str, Any] | None = None
    """Step, loss (`val/NAME`) and `max_length` of the best step, as plain data for the checkpoint."""

    def __post_init__(self) -> None:
        self.every_steps = self.validation.every_steps

    @property
    def step(self) -> int | None:
        """The best step; None if there is none yet."""
        return None if self.record is None else self.record["step"]

    def probe(self, step: int) -> Mapping[str, float]:
        """Validate and record the step if its loss is the lowest so far."""
        metrics, key = self.validation.probe(step), f"val/{self.judged_by}"
        max_length = self.plan.place(max(0, step - 1)).max_length
        is_compared = self.record is not None and self.record["max_length"] == max_length
        if step > 0 and metrics[key] < (self.record[key] if self.record and is_compared else math.inf):
            self.record = {"step": step, key: metrics[key], "max_length": max_length}
        return metrics


@dataclass
class MaskPredictionProbe(Probe):
    """Appends frames to `mask_predictions.jsonl`: for each sentence, the most likely tokens at its first blank.

    `mask_predictions.txt` in the same folder has all frames as readable text and is rewritten with every frame.

    Raises:
        ConfigError: A sentence is too long for the model.
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
        """Append the frame of this step. The returned metrics are empty."""
        if self.machine.ranks.is_first and self._inputs:
            rows = [
                {"step": step, "sentence": sentence, "guesses": self._guesses(*inputs)}
                for sentence, inputs in self._inputs.items()
            ]
            append_lines(self.path, [json.dumps(row, ensure_ascii=False) for row in rows])
            self._write_text(read_json_lines(self.path))
        return {}

    def keep_up_to(self, step: int) -> None:
        """Drop the frames after `step`."""
        if self.machine.ranks.is_first and self.path.exists():
            rows = [row for row in read_json_lines(self.path) if row["step"] <= step]
            write_atomically(self.path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
            self._write_text(rows)

    def _write_text(self, rows: Sequence[Mapping[str, Any]]) -> None:
        write_atomically(self.path.with_suffix(".txt"), mask_predictions_text(rows))

    def _guesses(self, input_ids: Tensor, position: int) -> list[list[Any]]:
        """Return the most likely tokens and their probabilities, most likely first."""
        ids = input_ids.to(self.machine.device)
        with evaluating(self.model, self.machine) as run:
            output = run(ids, torch.zeros_like(ids), torch.ones_like(ids), torch.full_like(ids[:, :1], position))
        # Embeddings may be padded: ids behind the tokenizer's stand for nothing.
        logits = output.mlm_logits[0, 0, : self.tokenizer.vocab_size]
        probabilities, guesses = logits.float().softmax(-1).topk(self.config.num_guesses)
        tokens = self.tokenizer.tokens(guesses.tolist())
        return [[token, round(prob, 6)] for token, prob in zip(tokens, probabilities.tolist(), strict=True)]

    def _encode(self, sentence: str) -> tuple[Tensor, int]:
        """Return `[CLS] sentence [SEP]` as token ids [1, S], and the position of the first blank."""
        tokenizer = self.tokenizer
        ids = tokenizer.single.sequence(tokenizer.encode(sentence.replace(MASK, tokenizer.mask_token)))
        longest = self.model.bert.config.max_position_embeddings
        if len(ids) > longest:
            raise ConfigError(
                f"pretrain.mask_predictions.sentences has one of {len(ids)} tokens, the model has positions for "
                f"{longest} (model.max_position_embeddings): {sentence!r}. Shorten it."
            )
        return torch.tensor([ids]), ids.index(tokenizer.mask_id)


def mask_predictions_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format mask predictions as readable text: each sentence with its guesses, newest first.

    Example:
        >>> guesses = [["list", 0.5], ["##s", 0.031]]
        >>> print(mask_predictions_text([{"step": 1000, "sentence": "A [MASK].", "guesses": guesses}]), end="")
        A [MASK].
             1,000  list 50 %  ##s 3 %
    """
    predictions: dict[str, list[str]] = {}
    for row in rows:
        guesses = "  ".join(f"{token} {100 * probability:.0f} %" for token, probability in row["guesses"])
        predictions.setdefault(row["sentence"], []).append(f"{row['step']:>10,}  {guesses}\n")
    return "\n".join(f"{sentence}\n{''.join(reversed(frames))}" for sentence, frames in predictions.items())
