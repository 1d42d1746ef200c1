"""Best use of a time budget: model size, batch size and number of steps for a number of hours."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertline.foundation.errors import ConfigError
from bertline.modeling.config import ModelConfig
from bertline.planning.config import PlanConfig
from bertline.planning.forecast import (
    Forecast,
    Resources,
    Training,
    forecast,
)
from bertline.planning.scaling import batch_tokens, epochs_worth_taking, expected_loss, learning_rate
from bertline.pretraining.config import PhaseConfig

# The rest of the hours is for validation, checkpoints, probes and startup.
_PLANNED_SHARE = 0.95
_LAST_LENGTH_SHARE = 0.1
"""Fraction of the steps at the last of several `plan.lengths`, as in the paper, A.2."""
_SHORTEST_ON_GPU = 128
_WARMUP_SHARE = 0.05
_MOST_WARMUP_STEPS = 10_000
"""Warm-up of the paper (A.2), for a million steps; RoBERTa (arXiv 1907.11692) warms up for 5 to 6 % of the steps."""
_FEWEST_STEPS = 5000
"""Number of steps below which the batch is made smaller instead: MLM spends over a thousand steps on a plateau."""
_SMALLEST_BATCH = 32
"""Minimum number of sequences of the longest length in a batch, per device."""
_FEWEST_STEPS_AT_ALL = 16
_TRIAL_STEPS = 100_000
"""Steps of the trial forecast that is scaled to the hours; enough that rounding is negligible."""
_TRIALS = 5
_AS_GOOD = 1.005
"""Factor within which losses count as equal to the lowest; the smallest of those models is chosen, as the cheapest to
use."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthShare:
    """Sequence length and its share of the steps."""

    length: int
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """Plan for the hours with one model size."""

    size: str
    training: Training
    forecast: Forecast
    loss: float
    """Loss by `scaling.expected_loss`; only its order is meaningful."""
    text_runs_out: bool
    """Whether the run ends before the hours do, because it has reached the maximum number of epochs."""
    learning_rate: float
    num_warmup_steps: int

    @property
    def targets_per_parameter(self) -> float:
        """Targets per parameter of the layers."""
        return self.forecast.targets / self.forecast.encoder_parameters

    @property
    def tokens_per_parameter(self) -> float:
        """Tokens per parameter of the layers; a token counts once per epoch."""
        return self.forecast.tokens / self.forecast.encoder_parameters


@dataclass(frozen=True, kw_only=True, slots=True)
class BestUse:
    """Plans for all sizes, and the chosen one."""

    candidates: tuple[Candidate, ...]
    """Plans of all sizes, smallest first."""
    chosen: Candidate
    max_epochs: float


def best_use(present: Training, sizes: Mapping[str, ModelConfig], resources: Resources, config: PlanConfig) -> BestUse:
    """Choose the model size whose run within `config.hours` has the lowest loss by `scaling.expected_loss`.

    Each size trains for as many steps as fit into 95 % of the hours, or until the maximum number of epochs is reached.
    The batch follows `scaling.batch_tokens`, with the same number of tokens in every step. Sizes that do not fit the
    memory are not chosen.

    Args:
        present: The configured training; its lengths, vocabulary, masking, optimizer and runtime are kept.
        sizes: Models to choose from, by name.
        resources: Hardware and text.
        config: Configuration of the plan, with `hours` set.

    Raises:
        ConfigError: A length exceeds the model's positions, no size fits the memory, or the hours are too few for the
            shortest run.
    """
    max_epochs = config.max_epochs or epochs_worth_taking(present.mask_prob)
    candidates = []
    for size, model in sizes.items():
        shares = length_shares(present.phases, config, model=model, on_gpu=resources.hardware.is_gpu)
        training = dataclasses.replace(present, model=model)
        candidate = _candidate(size, training, shares, resources, config, max_epochs)
        if candidate is not None:
            candidates.append(candidate)
    if not candidates:
        raise ConfigError(
            f"plan.hours is {config.hours:g}: not even {_FEWEST_STEPS_AT_ALL} steps of {_SMALLEST_BATCH} sequences fit "
            "into it. Give more hours or a faster device."
        )
    candidates.sort(key=lambda one: one.forecast.encoder_parameters)
    fitting = [one for one in candidates if one.forecast.fits]
    if not fitting:
        raise ConfigError(
            f"no size fits into the {resources.hardware.usable_bytes / 1e9:.1f} GB that {resources.hardware.title} has "
            "for tensors, not even with one sequence at once. Name a device with more memory."
        )
    lowest = min(one.loss for one in fitting)
    chosen = next(one for one in fitting if one.loss <= lowest * _AS_GOOD)
    return BestUse(candidates=tuple(candidates), chosen=chosen, max_epochs=max_epochs)


def length_shares(
    phases: Sequence[PhaseConfig], config: PlanConfig, *, model: ModelConfig, on_gpu: bool
) -> tuple[LengthShare, ...]:
    """Return the sequence lengths to train on and their shares of the steps; all steps have equal tokens.

    Raises:
        ConfigError: A length exceeds the model's positions.
    """
    longest = model.max_position_embeddings
    if config.lengths is not None:
        if max(config.lengths) > longest:
            raise ConfigError(
                f"plan.lengths has {max(config.lengths)}, but the model has positions for {longest} tokens "
                "(model.max_position_embeddings)."
            )
        before = len(config.lengths) - 1
        shares = [(1 - _LAST_LENGTH_SHARE) / before] * before if before else []
        return tuple(
            LengthShare(length=length, share=share)
            for length, share in zip(config.lengths, [*shares, 1 - sum(shares)], strict=True)
        )
    if on_gpu and max(phase.max_length for phase in phases) < _SHORTEST_ON_GPU:
        return (LengthShare(length=min(_SHORTEST_ON_GPU, longest), share=1.0),)
    tokens = [phase.steps * phase.global_batch_size * phase.max_length for phase in phases]
    return tuple(
        LengthShare(length=phase.max_length, share=one / sum(tokens)) for phase, one in zip(phases, tokens, strict=True)
    )


def overrides_for(use: BestUse, present: Training, *, num_devices: int, keeps_rate: bool) -> dict[str, Any]:
    """Return the configuration keys to set for the chosen candidate, without those of its model.

    Args:
        use: The chosen plan.
        present: The configured training; `runtime` keys are included only if they differ from it.
        num_devices: Number of devices of the plan.
        keeps_rate: Whether to keep the configured learning rate, for another optimizer or a checkpoint to start from.
    """
    chosen = use.chosen
    training = chosen.training
    keys: dict[str, Any] = {
        "examples.lengths": sorted({phase.max_length for phase in training.phases}),
        "pretrain.phases": [dataclasses.asdict(one) for one in training.phases],
        "pretrain.max_steps": None,
        "schedule.num_warmup_steps": chosen.num_warmup_steps,
    }
    if not keeps_rate:
        keys["optimizer.lr"] = chosen.learning_rate
    for name in ("micro_batch_size", "micro_batch_tokens"):
        if getattr(training.runtime, name) != getattr(present.runtime, name):
            keys[f"runtime.{name}"] = getattr(training.runtime, name)
    if num_devices != present.runtime.num_devices:
        keys["runtime.num_devices"] = num_devices
    return keys


def as_override(key: str, value: Any) -> str:
    """Format one override in Hydra's grammar.

    >>> as_override("pretrain.phases", [{"steps": 9, "max_length": 64}])
    'pretrain.phases=[{steps: 9, max_length: 64}]'
    """
    return f"{key}={json.dumps(value)}".replace('"', "")


def _candidate(
    size: str,
    training: Training,
    shares: Sequence[LengthShare],
    resources: Resources,
    config: PlanConfig,
    max_epochs: float,
) -> Candidate | None:
    """Plan the hours for one size; None if not even the shortest run fits into them."""
    assert config.hours is not None  # checked by the caller
    longest = max(one.length for one in shares)
    wanted = _SMALLEST_BATCH * resources.num_devices * longest
    for _ in range(_TRIALS):  # the time of small steps depends on the batch, and the batch on the time
        step_tokens = wanted
        _, trial = _fitted(_with_steps(training, shares, step_tokens, _TRIAL_STEPS), resources)
        share = _PLANNED_SHARE * config.hours / trial.hours
        text_runs_out = trial.epochs is not None and share * trial.epochs > max_epochs
        if trial.epochs is not None:
            share = min(share, max_epochs / trial.epochs)
        tokens, flops = share * step_tokens * _TRIAL_STEPS, share * trial.flops
        wanted = _step_tokens(tokens, flops, longest=longest, num_devices=resources.num_devices)
        if wanted == step_tokens:
            break
    steps = int(tokens / step_tokens)
    if steps < _FEWEST_STEPS_AT_ALL:
        return None
    training, planned = _fitted(_with_steps(training, shares, step_tokens, steps), resources)
    return Candidate(
        size=size,
        training=training,
        forecast=planned,
        loss=expected_loss(planned.encoder_parameters, planned.targets, resources.text.tokens),
        text_runs_out=text_runs_out,
        learning_rate=learning_rate(flops),
        num_warmup_steps=min(_MOST_WARMUP_STEPS, int(_WARMUP_SHARE * steps)),
    )


def _fitted(training: Training, resources: Resources) -> tuple[Training, Forecast]:
    """Forecast the training, with a micro-batch size that fits the memory if there is one."""
    found = forecast(training, resources)
    size = found.fitting_micro_batch_size
    if found.fits or size is None:
        return training, found
    runtime = dataclasses.replace(training.runtime, micro_batch_size=size, micro_batch_tokens=None)
    training = dataclasses.replace(training, runtime=runtime)
    return training, forecast(training, resources)


def _step_tokens(tokens: float, flops: float, *, longest: int, num_devices: int) -> int:
    """Return the tokens per step: the smallest batch on all devices times a power of two."""
    fewest = _SMALLEST_BATCH * num_devices * longest
    by_rule, most = (max(math.log2(one / fewest), 0) for one in (batch_tokens(flops), tokens / _FEWEST_STEPS))
    return fewest << min(round(by_rule), int(most))


def _with_steps(training: Training, shares: Sequence[LengthShare], step_tokens: int, steps: int) -> Training:
    """Return the training with `steps` steps of `step_tokens` tokens, distributed over the lengths by their shares."""
    ends = [round(steps * sum(one.share for one in shares[: index + 1])) for index in range(len(shares))]
    phases = [
        PhaseConfig(steps=end - start, max_length=one.length, global_batch_size=step_tokens // one.length)
        for one, start, end in zip(shares, [0, *ends], ends, strict=False)
        if end > start
    ]
    return dataclasses.replace(training, phases=tuple(phases))
