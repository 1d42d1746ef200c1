"""Check of the memory that each phase of pretraining needs, by the planner's estimate."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bertline.doctor.finding import Finding, green, note, red
from bertline.modeling.attention_choice import AttentionDevice
from bertline.orchestration.config import PipelineConfig
from bertline.orchestration.stages import ARTIFACTS
from bertline.planning import (
    GPUS,
    Training,
    largest_fitting,
    memory_of,
    optimizer_bytes,
    phases_reached,
    sequences_at_once,
    usable_bytes,
    vocab_size,
)
from bertline.training.devices import resolve_precision

_FP32_BYTES = 4


def training_on(config: PipelineConfig, device: torch.device) -> Training:
    """Return the configured pretraining on ranks with this kind of device."""
    assert config.corpus.kind != "none"
    assert config.tokenizer.kind != "none"  # validation requires both where there are phases
    precision = resolve_precision(config.pretrain.precision, device)
    return Training(
        model=config.model,
        objective=config.objective,
        vocab_size=vocab_size(config.tokenizer, artifacts=ARTIFACTS, made_so={}),
        mask_prob=config.examples.masking.mask_prob,
        phases=phases_reached(config.pretrain.phases, config.pretrain.num_steps),
        optimizer=config.optimizer,
        runtime=config.runtime,
        # Of a GPU, what a plan for one with this precision assumes.
        device=GPUS["a100" if precision == "bf16" else "v100"].attention_device(precision)
        if device.type == "cuda"
        else AttentionDevice(type=device.type, precision=precision),
    )


def gradient_bytes(training: Training) -> int:
    """Return the bytes of gradients that a step sums over the ranks."""
    return _FP32_BYTES * training.num_parameters


def checkpoint_bytes(training: Training) -> int:
    """Return the bytes of a checkpoint: weights and the optimizer's state."""
    parameters = training.num_parameters
    return _FP32_BYTES * parameters + optimizer_bytes(training.model, training.optimizer, parameters)


def memory_findings(
    training: Training, memory_bytes: int, *, num_ranks: int, chosen_by_hand: bool
) -> Iterator[Finding]:
    """Compare each phase's estimate with the memory of a rank.

    Args:
        training: The configured pretraining.
        memory_bytes: Memory of the rank that has least: its GPU's, or its share of the host's.
        num_ranks: Number of ranks of the run.
        chosen_by_hand: Whether the configuration sets the micro-batch; else training on a GPU looks for one that fits.

    Raises:
        ConfigError: The batches do not suit the number of ranks, or a micro-batch is too small for a row.
        MachineError: `runtime.attention` does not suit the device.
    """
    on_gpu = training.device.type == "cuda"
    usable = usable_bytes(memory_bytes, is_gpu=on_gpu)
    for number, (phase, needed) in enumerate(memory_of(training, num_ranks), start=1):
        check = f"memory: phase {number}"
        fitting = largest_fitting(training, phase.max_length, usable)
        said = (
            f"{_giga(needed)} ± 25 % of {_giga(usable)} for {sequences_at_once(training, phase, num_ranks)} sequences "
            f"of {phase.max_length} at once"
        )
        figures = {"needed_bytes": needed, "usable_bytes": usable}
        if needed <= usable:
            yield green(check, said, **figures)
        elif not fitting:
            yield red(
                check,
                f"{said}; not even one sequence fits",
                "Take a smaller model, a larger device, or, on a CPU, fewer ranks.",
                **figures,
            )
        elif chosen_by_hand or not on_gpu:
            yield red(check, said, f"Set runtime.micro_batch_size={fitting}, which changes no result.", **figures)
        else:
            yield note(
                check,
                said,
                "Training takes smaller micro-batches by itself before its first step; "
                f"runtime.micro_batch_size={fitting} saves it the search.",
                **figures,
            )


def _giga(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes < 1e10 else f"{num_bytes / 1e9:.1f} GB"
