"""Check of the memory that each phase of pretraining needs, by the planner's estimate."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bertline.doctor.finding import Finding, green, note, red
from bertline.orchestration.config import PipelineConfig
from bertline.orchestration.stages import ARTIFACTS
from bertline.planning.config import THIS_MACHINE
from bertline.planning.forecast import Forecast, Resources, Training, forecast, phases_reached
from bertline.planning.hardware import GPUS, Hardware
from bertline.planning.interconnect import link_of
from bertline.planning.rates import Rates
from bertline.planning.text_size import TextSize, vocab_size
from bertline.training.devices import resolve_precision

_FP32_BYTES = 4


def forecast_on(config: PipelineConfig, memory_bytes: int, device: torch.device, *, num_ranks: int) -> Forecast:
    """Forecast the memory of the configured pretraining; its times and tokens mean nothing.

    Args:
        config: The configuration; it pretrains.
        memory_bytes: Memory of one rank: its GPU's, or its share of the host's.
        device: Device of the rank.
        num_ranks: Number of ranks of the run.

    Raises:
        ConfigError: The batches do not suit the number of ranks, or a micro-batch is too small for a row.
        MachineError: `runtime.attention` does not suit the device.
    """
    assert config.corpus.kind != "none"
    assert config.tokenizer.kind != "none"  # validation requires both where there are phases
    precision = resolve_precision(config.pretrain.precision, device)
    is_gpu = device.type == "cuda"
    # Only memory is asked for: the rates of any device will do, and no text need be looked at.
    likeness = GPUS["a100"]
    hardware = Hardware(
        name=likeness.name if is_gpu else THIS_MACHINE,
        title="the GPU" if is_gpu else "the rank's share of the host's memory",
        bf16_flops=likeness.bf16_flops if precision == "bf16" else None,
        fp32_flops=likeness.fp32_flops,
        memory_bytes=memory_bytes,
        pattern="",
        source="",
        num_threads=None if is_gpu else 1,
    )
    training = Training(
        model=config.model,
        objective=config.objective,
        vocab_size=vocab_size(config.tokenizer, artifacts=ARTIFACTS, made_so={}),
        mask_prob=config.examples.masking.mask_prob,
        phases=phases_reached(config.pretrain.phases, config.pretrain.num_steps),
        optimizer=config.optimizer,
        runtime=config.runtime,
        precision=precision,
    )
    resources = Resources(
        hardware=hardware,
        num_devices=num_ranks,
        rates=Rates(hardware, precision, []),
        link=link_of(hardware.name, num_ranks, devices_per_node=num_ranks, network_gbit=1.0),
        text=TextSize(tokens=1.0, basis=""),
    )
    return forecast(training, resources)


def gradient_bytes(found: Forecast) -> int:
    """Return the bytes of gradients that a step sums over the ranks."""
    return _FP32_BYTES * found.parameters


def checkpoint_bytes(found: Forecast) -> int:
    """Return the bytes of a checkpoint: weights and the optimizer's state."""
    return _FP32_BYTES * found.parameters + found.fullest.memory.optimizer


def memory_findings(found: Forecast, *, on_gpu: bool, chosen_by_hand: bool) -> Iterator[Finding]:
    """Compare each phase's estimate with the memory of a rank.

    Args:
        found: `forecast_on` the rank with the least memory.
        on_gpu: Whether it is a GPU's memory.
        chosen_by_hand: Whether the configuration sets the micro-batch; else training on a GPU looks for one that fits.
    """
    usable = found.usable_bytes
    for number, phase in enumerate(found.phases, start=1):
        check = f"memory: phase {number}"
        needed, fitting = phase.memory.total, phase.largest_micro_batch_size
        said = (
            f"{_giga(needed)} ± 25 % of {_giga(usable)} for {phase.micro_batch_size} sequences of {phase.max_length} "
            "at once"
        )
        figures = {"needed_bytes": needed, "usable_bytes": usable}
        if needed <= usable:
            yield green(check, said, **figures)
        elif fitting is None:
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
