"""Forecast of a configured pretraining run: parameters, FLOPs, tokens, epochs, memory and hours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bertline.examples.masking import max_targets
from bertline.foundation.errors import ConfigError
from bertline.modeling.attention_choice import AttentionDevice, AttentionKind, stores_scores
from bertline.modeling.config import ModelConfig
from bertline.modeling.flops import flops_per_token, num_embedding_parameters, num_encoder_parameters, num_parameters
from bertline.planning.communication import Link, gradient_buckets, step_s
from bertline.planning.hardware import Hardware, Precision
from bertline.planning.interconnect import OVERLAP, computing_of
from bertline.planning.memory import MemoryEstimate, StepShape, largest_fitting, memory_of
from bertline.planning.rates import Rate, Rates
from bertline.planning.text_size import TextSize
from bertline.pretraining.config import PhaseConfig
from bertline.pretraining.objectives.registry import ObjectiveConfig
from bertline.pretraining.row_layout import packs, pretraining_attention, rows_at_once
from bertline.training.config import RuntimeConfig
from bertline.training.optimizers.base import OptimizerSettings

# Compute capability assumed for a GPU with and without bf16: Ampere introduced both bf16 and the features that the
# kernel for packed rows needs.
_WITH_BF16, _WITHOUT_BF16 = (8, 0), (7, 0)

# Minimum duration of a forward and backward pass on a GPU, due to kernel launches: per pass, and for each layer.
# Cautious guesses.
_LAUNCH_S = 2e-3
_LAUNCH_OF_LAYER_S = 0.3e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """Training run to forecast."""

    model: ModelConfig
    objective: ObjectiveConfig
    vocab_size: int
    mask_prob: float
    phases: tuple[PhaseConfig, ...]
    """Phases that the run reaches; the last one has only the steps that are run."""
    optimizer: OptimizerSettings
    runtime: RuntimeConfig
    precision: Precision

    def targets(self, length: int) -> int:
        """Return the number of masked positions per sequence; all are computed, though the last is not always used."""
        return max_targets(length, self.mask_prob, num_segments=self.objective.num_segments)

    def target_fraction(self, length: int) -> float:
        """Return the fraction of positions that go through the MLM head."""
        return self.targets(length) / length

    def flops_per_token(self, length: int) -> float:
        """Return the FLOPs per real token of sequences of this length."""
        return flops_per_token(
            self.model,
            vocab_size=self.vocab_size,
            seq_len=length,
            target_fraction=self.target_fraction(length),
            with_pooler=self.objective.with_pooler,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """Devices to train on, their speed, and the text."""

    hardware: Hardware
    num_devices: int
    rates: Rates
    """Speed of one of the devices."""
    link: Link
    """What connects them."""
    text: TextSize


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseForecast:
    """Forecast of one phase."""

    steps: int
    max_length: int
    global_batch_size: int
    sequences: int
    tokens: float
    """Number of non-padding tokens; an upper bound if no examples were counted."""
    targets: float
    """Number of tokens that are predicted."""
    epochs: float | None
    """Number of passes over the train text; None if its size is unknown."""
    flops: float
    """FLOPs for the non-padding tokens."""
    hours: float
    tokens_per_s: float
    """Non-padding tokens per second."""
    rate: Rate
    launches_take_longest: bool
    """Whether kernel launches take longer than computing, because the passes are small."""
    micro_batch_size: int
    memory: MemoryEstimate
    largest_micro_batch_size: int | None
    """Largest power of two that fits the memory of one device; None if none does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """Forecast of a whole run."""

    embedding_parameters: int
    encoder_parameters: int
    parameters: int
    """Number of parameters of the layers, the embeddings and the heads."""
    phases: tuple[PhaseForecast, ...]
    usable_bytes: int
    """Memory of a device that is available for tensors, in bytes."""
    steps: int
    """Number of steps of all phases; the next figures are sums over the phases too."""
    tokens: float
    targets: float
    flops: float
    hours: float
    hours_at_best: float
    hours_at_worst: float
    epochs: float | None

    @property
    def tokens_per_s(self) -> float:
        """Non-padding tokens per second."""
        return self.tokens / (3600 * self.hours)

    @property
    def fullest(self) -> PhaseForecast:
        """Phase that needs the most memory."""
        return max(self.phases, key=lambda phase: phase.memory.total)

    @property
    def fits(self) -> bool:
        """Whether the run fits the memory of a device."""
        return self.fullest.memory.total <= self.usable_bytes

    @property
    def fitting_micro_batch_size(self) -> int | None:
        """`runtime.micro_batch_size` with which every phase fits; None if there is none."""
        sizes = [phase.largest_micro_batch_size for phase in self.phases]
        return None if None in sizes else min(size for size in sizes if size is not None)


def phases_reached(phases: Sequence[PhaseConfig], num_steps: int) -> tuple[PhaseConfig, ...]:
    """Return the phases of the first `num_steps` steps, with the last one shortened to end there.

    >>> one = PhaseConfig(steps=5, max_length=64, global_batch_size=8)
    >>> [phase.steps for phase in phases_reached([one, one, one], 7)]
    [5, 2]
    """
    reached: list[PhaseConfig] = []
    for phase in phases:
        steps = min(phase.steps, num_steps - sum(one.steps for one in reached))
        if steps > 0:
            reached.append(replace(phase, steps=steps))
    return tuple(reached)


def forecast(training: Training, resources: Resources) -> Forecast:
    """Forecast a training run on the given devices, without running anything.

    Raises:
        ConfigError: A batch has fewer sequences than there are devices, a micro-batch is too small for one sequence, or
            the device does not support the precision.
        MachineError: The device does not support `runtime.attention`.
    """
    for index, phase in enumerate(training.phases):
        if phase.global_batch_size < resources.num_devices:
            raise ConfigError(
                f"pretrain.phases[{index}].global_batch_size is {phase.global_batch_size}, fewer than the "
                f"{resources.num_devices} devices (plan.num_devices). Give every device at least one sequence a step."
            )
    model, vocab_size = training.model, training.vocab_size
    phases = tuple(_of_phase(phase, training, resources) for phase in training.phases)
    epochs = [phase.epochs for phase in phases if phase.epochs is not None]
    return Forecast(
        embedding_parameters=num_embedding_parameters(model, vocab_size=vocab_size),
        encoder_parameters=num_encoder_parameters(model),
        parameters=num_parameters(model, vocab_size=vocab_size, with_pooler=training.objective.with_pooler),
        phases=phases,
        usable_bytes=resources.hardware.usable_bytes,
        steps=sum(phase.steps for phase in phases),
        tokens=sum(phase.tokens for phase in phases),
        targets=sum(phase.targets for phase in phases),
        flops=sum(phase.flops for phase in phases),
        hours=sum(phase.hours for phase in phases),
        hours_at_best=sum(phase.hours / phase.rate.fastest for phase in phases),
        hours_at_worst=sum(phase.hours / phase.rate.slowest for phase in phases),
        epochs=sum(epochs) if len(epochs) == len(phases) else None,
    )


def _of_phase(phase: PhaseConfig, training: Training, resources: Resources) -> PhaseForecast:
    length, sequences = phase.max_length, phase.steps * phase.global_batch_size
    tokens = sequences * resources.text.tokens_per_sequence(length)
    one_pass = resources.text.examples(length)
    shape = _shape(phase, training, resources)
    fraction = training.target_fraction(length)
    one = resources.rates.of(training.model, vocab_size=training.vocab_size, seq_len=length, target_fraction=fraction)
    # Rows are computed whole unless they are packed.
    # Segments that are compared are sequences of their own, two for an example.
    fill = resources.text.tokens_per_sequence(length) / length
    num_rows = 1 if training.objective.pairs_together is None else 2
    is_packed = packs(training.runtime, fill=fill / num_rows, attention=_attention(length, training, resources))
    flops = training.flops_per_token(length)
    computed = sequences * length * (fill if is_packed else num_rows) * flops
    computing_s = computed / (one.flops_per_s * resources.num_devices)
    passes = math.ceil(phase.global_batch_size / resources.num_devices / shape.sequences)
    launching_s = phase.steps * passes * _launches_s(training, resources)
    alone_s = max(computing_s, launching_s)
    share = _computing_share(alone_s / phase.steps, passes, training, resources)
    hours = alone_s / share / 3600
    return PhaseForecast(
        **asdict(phase),
        sequences=sequences,
        tokens=tokens,
        targets=training.mask_prob * (tokens - (1 + training.objective.num_segments) * sequences),
        epochs=sequences / one_pass.sequences if one_pass else None,
        flops=tokens * flops,
        hours=hours,
        tokens_per_s=tokens / (3600 * hours),
        rate=one.together(resources.num_devices, share),
        launches_take_longest=launching_s > computing_s,
        micro_batch_size=shape.sequences,
        memory=memory_of(training.model, shape, vocab_size=training.vocab_size),
        largest_micro_batch_size=largest_fitting(
            training.model, shape, resources.hardware.usable_bytes, vocab_size=training.vocab_size
        ),
    )


def _computing_share(seconds: float, passes: int, training: Training, resources: Resources) -> float:
    """Return the share of a step that is not spent waiting for gradients, if computing takes `seconds`."""
    model = training.model
    buckets = gradient_buckets(
        num_encoder_parameters(model), num_embedding_parameters(model, vocab_size=training.vocab_size)
    )
    computing = computing_of(seconds, passes=passes)
    return seconds / step_s(computing, buckets, resources.num_devices, resources.link, overlap=OVERLAP)


def _launches_s(training: Training, resources: Resources) -> float:
    """Return the minimum seconds of a forward and backward pass due to kernel launches."""
    if not resources.hardware.is_gpu:
        return 0.0
    return _LAUNCH_S + training.model.num_hidden_layers * _LAUNCH_OF_LAYER_S


def _shape(phase: PhaseConfig, training: Training, resources: Resources) -> StepShape:
    runtime, length = training.runtime, phase.max_length
    share = -(-phase.global_batch_size // resources.num_devices)
    return StepShape(
        sequences=min(share, rows_at_once(runtime, length) or share),
        length=length,
        targets=training.targets(length),
        precision=training.precision,
        optimizer=training.optimizer,
        compiled=runtime.compile != "off",
        fused_attention=not stores_scores(
            _attention(length, training, resources),
            _device(training, resources),
            dropout_prob=training.model.attention_probs_dropout_prob,
        ),
        with_pooler=training.objective.with_pooler,
    )


def _attention(length: int, training: Training, resources: Resources) -> AttentionKind:
    """Return the attention kernel that the run will choose."""
    return pretraining_attention(training.runtime, training.model, _device(training, resources), length).kind


def _device(training: Training, resources: Resources) -> AttentionDevice:
    if not resources.hardware.is_gpu:
        return AttentionDevice(type="cpu", precision=training.precision)
    capability = _WITHOUT_BF16 if resources.hardware.bf16_flops is None else _WITH_BF16
    return AttentionDevice(type="cuda", precision=training.precision, compute_capability=capability)


def default_run_text(records: Sequence[Mapping[str, Any]], *, precision: Precision, flops: float, threads: int) -> str:
    """Forecast the minutes of the default pipeline on this machine, from recorded runs of it, in one line.

    What trains is scaled by the rate of large matrix products; reading text and writing reports is not. Between
    precisions only pretraining is scaled: the products of fine-tuning are too small to gain from bf16.

    Args:
        records: Records of `benchmarks/default_run.py`; those of other precisions are used only if there is no other.
        precision: Precision in which this machine would train.
        flops: Floating-point operations per second of its large matrix products, in this precision.
        threads: Number of threads that multiply.
    """
    record = min(records, key=lambda one: (one["precision"] != precision, abs(math.log(one["matmul_flops"] / flops))))
    run, slower = record["runs"][0], record["matmul_flops"] / flops
    slower_tasks = slower if record["precision"] == precision else 1.0
    parts = dict.fromkeys(("text to examples", "pretraining", "tasks", "report and export"), 0.0)
    for stage, seconds in run["seconds"].items():
        match stage.partition("@")[0]:
            case "pretrain":
                parts["pretraining"] += seconds * slower
            case "sweep":
                parts["tasks"] += seconds * slower_tasks
            case "evaluate" | "export":
                parts["report and export"] += seconds
            case _:
                parts["text to examples"] += seconds
    between = run["wall_s"] - sum(run["seconds"].values())  # DVC's own time and the starts of stages
    total = sum(parts.values()) + between
    listed = ", ".join(f"{name} {max(1, round(seconds / 60))}" for name, seconds in parts.items())
    return (
        f"The default pipeline takes about {max(1, round(total / 60))} minutes on this machine when nothing else runs "
        f"({threads} threads, {precision}, {flops / 1e9:,.0f} GFLOP/s): {listed}. What is up to date is skipped."
    )
