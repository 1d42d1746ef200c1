"""Training speed of a device: measured by benchmarks/pretraining_step.py, or else a published fraction of its peak."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from bertline.foundation.processor import processor_name
from bertline.foundation.progress import warn
from bertline.modeling.config import ModelConfig
from bertline.modeling.flops import flops_per_token
from bertline.planning.hardware import Hardware, Precision

# Published model FLOPs utilization by hidden size: the five sizes of Ettin (arXiv 2507.11412; hours on 4 H100 in its
# README); 128 is extrapolated from them. On A100, whose peak is a third of the H100's, MosaicBERT reaches 0.31 at 768
# (arXiv 2312.17482) and NVIDIA 0.45 at 1,024 (DeepLearningExamples).
_PUBLISHED_UTILISATION = {128: 0.02, 256: 0.055, 384: 0.084, 512: 0.16, 768: 0.24, 1024: 0.34}
_PUBLISHED_RANGE = (0.75, 2.0)
"""Actual rate as a multiple of the stated one, at worst and at best; the stated fraction is cautious."""
# Without tensor cores, computing is slow enough that memory and kernel launches are no bottleneck.
_FP32_UTILISATION = 0.4

# Compiled steps of tiny and mini compared with matrix products in the same process, on one core with AVX512-BF16: 0.41
# and 0.49 in bf16, mini 0.83 in fp32.
_UTILISATION_ON_CPU = {"bf16": 0.4, "fp32": 0.7}
_RANGE_ON_CPU = (0.7, 1.4)

_MEASURED_RANGE = (0.9, 1.1)
_NEARBY_RANGE = (0.7, 1.3)
_SAME_FLOPS = 1.02
_NEARBY = 3.0
"""Maximum factor between the FLOPs per token of the model and of a measured one; for lengths it is `_NEARBY` + 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedRecord:
    """Fields of a record of benchmarks/pretraining_step.py that the planner uses."""

    file: str
    device: str
    precision: str
    model: str
    seq_len: int
    dropout: float
    threads: int
    tokens_per_s: float
    flops_per_token: float

    @property
    def flops_per_s(self) -> float:
        """Model FLOPs per second."""
        return self.tokens_per_s * self.flops_per_token


@dataclass(frozen=True, slots=True)
class Rate:
    """Model FLOPs per second, with their uncertainty."""

    flops_per_s: float
    slowest: float
    """Rate in the worst case as a multiple of `flops_per_s`; `fastest` is that in the best case."""
    fastest: float
    measured: bool
    basis: str

    def together(self, num_devices: int, share: float) -> Rate:
        """Return the rate of several devices, which spend a share of the time on computing.

        In the best case of a measured rate, the devices do not wait for each other at all.
        """
        if num_devices == 1:
            return self
        return replace(
            self,
            flops_per_s=self.flops_per_s * num_devices * share,
            fastest=min(self.fastest, 1 / share) if self.measured else self.fastest,
            measured=False,
            basis=f"{self.basis}; {num_devices} devices together at {share:.0%} of that each, by a model of the link",
        )


class Rates:
    """Training rates of one device.

    Args:
        hardware: The device.
        precision: Precision of the training.
        records: Measured records, of any device.
    """

    def __init__(self, hardware: Hardware, precision: Precision, records: Sequence[SpeedRecord]) -> None:
        self.hardware = hardware
        self.precision = precision
        self._records = [one for one in records if one.precision == precision and _is_of(one, hardware)]

    def of(self, model: ModelConfig, *, vocab_size: int, seq_len: int, target_fraction: float) -> Rate:
        """Return the rate for one model and sequence length."""
        needed = flops_per_token(model, vocab_size=vocab_size, seq_len=seq_len, target_fraction=target_fraction)
        return self._measured(needed, seq_len, model) or self._stated(model)

    def _measured(self, needed: float, seq_len: int, model: ModelConfig) -> Rate | None:
        """Interpolate between measured models at the nearest sequence length; None if no record is near enough."""
        closest = min((_factor(one.seq_len, seq_len) for one in self._records), default=math.inf)
        if closest > _NEARBY + 1:
            return None
        near = [one for one in self._records if _factor(one.seq_len, seq_len) == closest]
        with_dropout = model.hidden_dropout_prob > 0
        near.sort(key=lambda one: (one.dropout > 0) != with_dropout)
        of_sizes = {one.flops_per_token: one for one in reversed(near)}  # prefers records with the model's dropout
        near = [of_sizes[flops] for flops in sorted(of_sizes)]
        nearest = min(near, key=lambda one: _factor(one.flops_per_token, needed))
        if nearest.seq_len == seq_len and _factor(nearest.flops_per_token, needed) <= _SAME_FLOPS:
            same = (nearest.dropout > 0) == with_dropout
            basis = f"measured: {nearest.file}" + ("" if same else f" (dropout {nearest.dropout:g})")
            return Rate(nearest.flops_per_s, *(_MEASURED_RANGE if same else _NEARBY_RANGE), measured=True, basis=basis)
        is_between = near[0].flops_per_token <= needed <= near[-1].flops_per_token
        if not is_between and _factor(nearest.flops_per_token, needed) > _NEARBY:
            return None
        # Constant beyond the smallest and the largest measured model.
        logarithm = np.interp(
            math.log(needed),
            [math.log(one.flops_per_token) for one in near],
            [math.log(one.flops_per_s) for one in near],
        )
        below = [one.file for one in near if one.flops_per_token <= needed]
        above = [one.file for one in near if one.flops_per_token >= needed]
        basis = f"measured on models near it: {', '.join(sorted({nearest.file, *below[-1:], *above[:1]}))}"
        return Rate(math.exp(logarithm), *_NEARBY_RANGE, measured=True, basis=basis)

    def _stated(self, model: ModelConfig) -> Rate:
        """Return the stated fraction of the peak."""
        peak = self.hardware.peak_flops(self.precision)
        if not self.hardware.is_gpu:
            share, bounds = _UTILISATION_ON_CPU[self.precision], _RANGE_ON_CPU
            reason = "what tiny and mini reach on a core"
        else:
            sizes = sorted(_PUBLISHED_UTILISATION)
            share = float(np.interp(model.hidden_size, sizes, [_PUBLISHED_UTILISATION[size] for size in sizes]))
            bounds = _PUBLISHED_RANGE
            reason = f"what others publish for hidden size {model.hidden_size}"
            if self.precision == "fp32" and share < _FP32_UTILISATION:
                share, reason = _FP32_UTILISATION, "a cautious guess for fp32"
        basis = (
            f"not measured: {share:.1%} of {peak / 1e12:.3g} TFLOP/s in {self.precision} "
            f"({self.hardware.source}), {reason}"
        )
        return Rate(share * peak, *bounds, measured=False, basis=basis)


def read_records(folder: Path) -> list[SpeedRecord]:
    """Read the pretraining speed records in a folder of results; invalid files are skipped with a warning."""
    records = []
    for path in sorted(folder.glob("pretraining_step_*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["tokens_per_s"] is None:  # that side was not measured
                continue
            of_content = {field.name: content[field.name] for field in fields(SpeedRecord) if field.name != "file"}
            records.append(SpeedRecord(file=path.name, **of_content))
        except (ValueError, KeyError, TypeError) as error:
            warn(f"{path} is not a record of pretraining_step.py ({type(error).__name__}: {error}); it is not used")
    return records


def _is_of(record: SpeedRecord, hardware: Hardware) -> bool:
    if hardware.is_gpu:
        return re.search(hardware.pattern, record.device) is not None
    return (record.device, record.threads) == (processor_name(), hardware.num_threads)


def _factor(left: float, right: float) -> float:
    return max(left / right, right / left)
