"""Planner: parameters, FLOPs, memory, hours and money of the configured pretraining on named hardware.

Nothing is run and PyTorch is not imported, except to measure this machine's matrix products. Two rules judge the run:
data (are there tokens enough for the parameters, and is the text read too often?) and size (does it fit into memory?).
"""

from __future__ import annotations

import json
import math
import os
import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from bertline.corpus.compression import COMPRESSED_SUFFIXES
from bertline.corpus.input_files import find_files
from bertline.corpus.registry import CorpusConfig, readers_of
from bertline.examples.masking import max_targets
from bertline.examples.store import FORMAT_VERSION, KIND
from bertline.foundation.errors import ConfigError, DataError
from bertline.foundation.files import read_json
from bertline.foundation.formats import rough_duration, three_digits
from bertline.foundation.manifests import MANIFEST_NAME, read_manifest
from bertline.foundation.processor import processor_name
from bertline.modeling.attention_choice import AttentionDevice, AttentionKind, stores_scores
from bertline.modeling.config import ModelConfig
from bertline.modeling.flops import flops_per_token, num_embedding_parameters, num_encoder_parameters, num_parameters
from bertline.pretraining.config import PhaseConfig
from bertline.pretraining.objectives.registry import ObjectiveConfig
from bertline.pretraining.row_layout import packs, pretraining_attention, rows_at_once
from bertline.tokenization.config import (
    ByteBpeTokenizerConfig,
    ExtendedTokenizerConfig,
    TokenizerConfig,
    TrainedTokenizerConfig,
)
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import read_vocabulary
from bertline.training.config import RuntimeConfig
from bertline.training.optimizers.base import OptimizerSettings

Precision = Literal["fp32", "bf16"]
THIS_MACHINE = "cpu"

TOKENS_PER_PARAMETER = 20.0
"""Tokens per parameter of a decoder, which predicts every token (Hoffmann et al., arXiv 2203.15556, section 3.4)."""
MAX_EPOCHS = 4.0
"""Epochs of one text that are nearly as good as new text (Muennighoff et al., arXiv 2305.16264, section 6)."""
EFFICIENCY_OF_SEVERAL = 0.9
"""Part of their time that several devices compute. Cautious for one machine: NVIDIA's BERT is 7.9 times as fast on 8
GPUs (DeepLearningExamples). Optimistic for a slow network: see docs/howto/several-machines.md."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanConfig:
    """Arguments of the planner (conf/plan.yaml)."""

    device: str
    """`cpu` for this machine's processor, or a GPU in `planning.GPUS`; converted to lower case."""
    num_devices: int
    """Number of devices of the run; they divide the time, with an efficiency of 90 %."""
    price_per_hour: float | None
    """Price of one device per hour, in any currency; None omits costs."""
    corpus_tokens: float | None
    """Number of tokens of the text, if it is not on this machine; None looks at artifacts/ and `corpus.path`."""
    pipeline: bool
    """Whether to forecast the whole default pipeline on this machine, in one line, and nothing else."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", self.device.lower())  # users write A100
        if self.num_devices < 1:
            raise ValueError(f"num_devices must be at least 1, found {self.num_devices}")
        if self.device == THIS_MACHINE and self.num_devices != 1:
            raise ValueError(f"num_devices is {self.num_devices}, but device is {THIS_MACHINE}, this machine: give 1")
        if self.corpus_tokens is not None and not 0 < self.corpus_tokens < math.inf:
            raise ValueError(f"corpus_tokens must be above 0 and finite, or null, found {self.corpus_tokens}")
        if self.price_per_hour is not None and not 0 <= self.price_per_hour < math.inf:
            raise ValueError(f"price_per_hour must not be negative, found {self.price_per_hour}")


# Hardware


@dataclass(frozen=True, slots=True)
class Hardware:
    """Peak FLOP/s and memory of one device."""

    name: str
    """Name used in `plan.device`."""
    title: str
    bf16_flops: float | None
    """Peak FLOP/s of dense bf16 matrix products accumulated in fp32; None without bf16 in hardware."""
    fp32_flops: float
    """Peak FLOP/s in fp32 (not TF32, which bertline leaves off)."""
    memory_bytes: float
    pattern: str = ""
    """Regular expression that matches the device name reported by PyTorch."""
    source: str = "data sheet"
    num_threads: int | None = None
    """Number of threads on this machine's processor; None for a GPU."""

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU; the only other one is this machine's processor."""
        return self.name != THIS_MACHINE

    @property
    def usable_bytes(self) -> int:
        """Memory for tensors: without the driver's context of a GPU, and what fragmentation wastes."""
        return int((self.memory_bytes - (1e9 if self.is_gpu else 0)) * 0.95)

    def precision(self, asked: Literal["auto", "fp32", "bf16"]) -> Precision:
        """Return the precision of a training run on this device; `auto` is bf16 if the hardware supports it.

        Raises:
            ConfigError: The precision is bf16, and the device has no bf16 in hardware.
        """
        if asked == "bf16" and self.bf16_flops is None:
            raise ConfigError(
                f"pretrain.precision is bf16, but {self.title} has no bf16 in hardware and would emulate it, far "
                "slower than fp32. Use pretrain.precision=auto or fp32, or a newer device."
            )
        return "fp32" if asked == "fp32" or self.bf16_flops is None else "bf16"

    def attention_device(self, precision: Precision) -> AttentionDevice:
        """Return what the choice of the attention kernel depends on."""
        if not self.is_gpu:
            return AttentionDevice(type="cpu", precision=precision)
        # Ampere introduced both bf16 and the features that the kernel for packed rows needs.
        capability = (7, 0) if self.bf16_flops is None else (8, 0)
        return AttentionDevice(type="cuda", precision=precision, compute_capability=capability)


# Dense rates of the vendors' data sheets and, for RTX, of the architectures' whitepapers; rates with structured
# sparsity are twice as high. A B200 is an eighth of a DGX B200.
GPUS = {
    one.name: one
    for one in (
        Hardware("t4", "NVIDIA T4", None, 8.1e12, 16e9, r"\bT4\b"),
        Hardware("v100", "NVIDIA V100 16 GB", None, 15.7e12, 16e9, r"V100"),
        Hardware("v100_32gb", "NVIDIA V100 32 GB", None, 15.7e12, 32e9, r"V100"),
        Hardware("a10", "NVIDIA A10", 125e12, 31.2e12, 24e9, r"\bA10\b"),
        Hardware("a10g", "NVIDIA A10G", 70e12, 31.5e12, 24e9, r"\bA10G\b"),
        Hardware("a30", "NVIDIA A30", 165e12, 10.3e12, 24e9, r"\bA30\b"),
        Hardware("a40", "NVIDIA A40", 149.7e12, 37.4e12, 48e9, r"\bA40\b"),
        Hardware("a6000", "NVIDIA RTX A6000", 154.8e12, 38.7e12, 48e9, r"RTX A6000\b"),
        Hardware("a100", "NVIDIA A100 80 GB", 312e12, 19.5e12, 80e9, r"A100"),
        Hardware("a100_40gb", "NVIDIA A100 40 GB", 312e12, 19.5e12, 40e9, r"A100"),
        Hardware("l4", "NVIDIA L4", 121e12, 30.3e12, 24e9, r"\bL4\b"),
        Hardware("l40s", "NVIDIA L40S", 362e12, 91.6e12, 48e9, r"\bL40S\b"),
        Hardware("h100", "NVIDIA H100 SXM", 989e12, 66.9e12, 80e9, r"H100 80GB HBM3"),
        Hardware("h100_pcie", "NVIDIA H100 PCIe", 756e12, 51.2e12, 80e9, r"H100 PCIe"),
        Hardware("h200", "NVIDIA H200", 989e12, 66.9e12, 141e9, r"\bH200\b"),
        Hardware("b200", "NVIDIA B200", 2250e12, 75e12, 180e9, r"\bB200\b"),
        Hardware("rtx3090", "NVIDIA GeForce RTX 3090", 71e12, 35.6e12, 24e9, r"RTX 3090$"),
        Hardware("rtx4090", "NVIDIA GeForce RTX 4090", 165.2e12, 82.6e12, 24e9, r"RTX 4090$"),
        Hardware("rtx5090", "NVIDIA GeForce RTX 5090", 209.5e12, 104.8e12, 32e9, r"RTX 5090$"),
    )
}


def gpu_named(name: str) -> Hardware:
    """Return a GPU by name.

    Raises:
        ConfigError: The GPU is not in the table.
    """
    if name not in GPUS:
        raise ConfigError(
            f"plan.device is {name!r}, which is not in the table. Known: {THIS_MACHINE} (this machine's processor), "
            f"{', '.join(GPUS)}. For another one take the nearest below it."
        )
    return GPUS[name]


def this_machine(asked: Literal["auto", "fp32", "bf16"], *, num_threads: int | None) -> Hardware:
    """Return this machine's processor, with its rate of matrix products in the precision that a run would use."""
    # Imported here because PyTorch takes seconds to import, and a plan for a GPU does not need it.
    import torch

    from bertline.training.devices import resolve_precision
    from bertline.training.matmul_rate import matmul_rate

    if num_threads is not None:
        torch.set_num_threads(num_threads)
    device = torch.device("cpu")
    precision = resolve_precision(asked, device)
    rate = matmul_rate(device, precision, for_s=1.0)
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count() or 1} cores"
    return Hardware(
        THIS_MACHINE,
        "this machine's processor",
        rate if precision == "bf16" else None,
        rate,
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        source=f"a matrix product, measured now, {load}",
        num_threads=torch.get_num_threads(),
    )


# The training, and its memory


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
    device: AttentionDevice
    """Kind of each device, with the precision."""

    @property
    def num_parameters(self) -> int:
        """Number of parameters of the layers, the embeddings and the heads."""
        with_pooler = self.objective.with_pooler
        return num_parameters(self.model, vocab_size=self.vocab_size, with_pooler=with_pooler)

    def targets(self, length: int) -> int:
        """Return the number of masked positions per sequence; all are computed, though the last is not always used."""
        return max_targets(length, self.mask_prob, num_segments=self.objective.num_segments)

    def flops_per_token(self, length: int) -> float:
        """Return the FLOPs per real token of sequences of this length."""
        return flops_per_token(
            self.model,
            vocab_size=self.vocab_size,
            seq_len=length,
            target_fraction=self.targets(length) / length,
            with_pooler=self.objective.with_pooler,
        )

    def attention(self, length: int) -> AttentionKind:
        """Return the attention kernel that the run will choose; raises MachineError as the run would."""
        return pretraining_attention(self.runtime, self.model, self.device, length).kind


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


def largest_fitting(training: Training, length: int, usable_bytes: int) -> int:
    """Return the largest power of two of sequences per micro-batch that fits; 0 if not even one does."""
    fixed, one = (step_memory(training, length, sequences).total for sequences in (0, 1))
    most = (usable_bytes - fixed) // (one - fixed)
    return 1 << (most.bit_length() - 1) if most >= 1 else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes on one device at the peak of a step."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    """Activations of the layers and embeddings that the backward pass needs."""
    logits: int
    """Vocabulary logits at the masked positions, and their gradients."""

    @property
    def fixed(self) -> int:
        """Bytes that do not depend on the micro-batch."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return self.fixed + self.activations + self.logits


def step_memory(training: Training, length: int, sequences: int) -> Memory:
    """Estimate the memory of one step on one device within some 25 %, from the configuration alone.

    Weights, gradients and optimizer state are in fp32, and their size is exact; bf16 adds a copy of the weights.
    Activations are those that PyTorch keeps for each part of a layer, in bytes per position (I intermediate size, H
    hidden size, b bytes per element, S sequence length): input and output of the activation function, 2 b I; query,
    key, value and context, 4 b H; inputs of the matrix products and of both LayerNorms, which stay in fp32, 12 H in
    bf16 and 16 H in fp32; dropout masks, 1 byte per element; and without fused attention the attention probabilities, S
    elements per head. The last layer keeps its input, keys and values, 3 b H, for all positions, and the rest only for
    the positions that the heads read: the targets and, with a pooler, the first position.

    References:
        Korthikanti et al., arXiv 2205.05198, section 4.1, count the same way.
    """
    model, with_pooler = training.model, training.objective.with_pooler
    hidden, parameters, targets = model.hidden_size, training.num_parameters, training.targets(length)
    width = 2 if training.device.precision == "bf16" else 4
    of_layer = 2 * width * model.intermediate_size + 4 * width * hidden + (12 if width == 2 else 16) * hidden
    if model.hidden_dropout_prob:
        of_layer += 2 * hidden
    dropout_prob = model.attention_probs_dropout_prob
    if stores_scores(training.attention(length), training.device, dropout_prob=dropout_prob):
        # Probabilities in fp32, a copy in the dtype of the next matrix product, and a mask.
        of_score = 4 + (2 if width == 2 else 0) + (1 if dropout_prob else 0)
        of_layer += model.num_attention_heads * length * of_score
    of_all = 3 * width * hidden
    of_embedding = (4 + width + (1 if model.hidden_dropout_prob else 0)) * hidden
    # A compiled step keeps the logit and its gradient; others also fp32 copies, the softmax and their gradients.
    of_logit = 20 if training.runtime.compile == "off" else 2 * width
    positions, read = sequences * length, sequences * min(targets + with_pooler, length)
    vectors = 9 * hidden + model.intermediate_size  # biases and LayerNorms of a layer
    matrices = num_encoder_parameters(model) - model.num_hidden_layers * vectors
    moments, of_layers = training.optimizer.moments, training.optimizer.moments_of_layers
    layers = positions * ((model.num_hidden_layers - 1) * of_layer + of_all) + read * (of_layer - of_all)
    return Memory(
        weights=parameters * (4 + (2 if width == 2 else 0)),
        gradients=parameters * 4,
        optimizer=4 * (moments * parameters - (0 if of_layers is None else (moments - of_layers) * matrices)),
        activations=layers + positions * of_embedding,
        logits=sequences * targets * training.vocab_size * of_logit,
    )


# Speed

# Published model FLOPs utilization by hidden size: the five sizes of Ettin (arXiv 2507.11412; hours on 4 H100 in its
# README); 128 is extrapolated from them. On A100, whose peak is a third of the H100's, MosaicBERT reaches 0.31 at 768
# (arXiv 2312.17482) and NVIDIA 0.45 at 1,024 (DeepLearningExamples). Without tensor cores, computing is slow enough
# that memory and kernel launches are no bottleneck.
_PUBLISHED_UTILISATION = {128: 0.02, 256: 0.055, 384: 0.084, 512: 0.16, 768: 0.24, 1024: 0.34}
_FP32_UTILISATION = 0.4
# Compiled steps of tiny and mini compared with matrix products in the same process, on one core with AVX512-BF16: 0.41
# and 0.49 in bf16, mini 0.83 in fp32.
_CPU_UTILISATION = {"bf16": 0.4, "fp32": 0.7}
# Seconds that a forward and backward pass takes at least on a GPU, due to kernel launches, and for each layer more.
# Cautious guesses.
_LAUNCH_S, _LAUNCH_OF_LAYER_S = 2e-3, 0.3e-3


class Rate(NamedTuple):
    """Model FLOPs per second of one device, with their uncertainty."""

    flops_per_s: float
    slowest: float
    """Rate in the worst case as a multiple of `flops_per_s`; `fastest` is that in the best case."""
    fastest: float
    basis: str


def read_records(folder: Path) -> list[dict[str, Any]]:
    """Read the records of benchmarks/pretraining_step.py in a folder of results."""
    paths = sorted(folder.glob("pretraining_step_*.json"))
    records = [{**json.loads(path.read_text(encoding="utf-8")), "file": path.name} for path in paths]
    return [record for record in records if record["tokens_per_s"] is not None]  # None: that side was not measured


def rate_of(training: Training, length: int, hardware: Hardware, records: Sequence[Mapping[str, Any]]) -> Rate:
    """Return the rate of the nearest record on this hardware; without one near enough, a stated fraction of the peak.

    A record is near up to four times the length and three times the FLOPs per token; the nearest length, then the
    nearest model, then the same dropout decide.
    """
    needed, precision = training.flops_per_token(length), training.device.precision
    with_dropout = training.model.hidden_dropout_prob > 0

    def distance(record: Mapping[str, Any]) -> tuple[float, float, bool]:
        ratios = (record["seq_len"] / length, record["flops_per_token"] / needed)
        of_length, of_model = (max(ratio, 1 / ratio) for ratio in ratios)
        return of_length, round(of_model, 1), (record["dropout"] > 0) != with_dropout

    def is_own(record: Mapping[str, Any]) -> bool:
        if not hardware.is_gpu and (record["device"], record["threads"]) != (processor_name(), hardware.num_threads):
            return False
        return record["precision"] == precision and re.search(hardware.pattern, record["device"]) is not None

    near = [one for one in records if is_own(one) and distance(one)[0] <= 4 and distance(one)[1] <= 3]
    if near:
        record = min(near, key=distance)
        flops_per_s = record["tokens_per_s"] * record["flops_per_token"]
        if distance(record) == (1, 1, False):
            return Rate(flops_per_s, 0.9, 1.1, f"measured: {record['file']}")
        return Rate(flops_per_s, 0.7, 1.3, f"measured on the model nearest to it: {record['file']}")
    peak = hardware.bf16_flops if precision == "bf16" and hardware.bf16_flops is not None else hardware.fp32_flops
    hidden, published = training.model.hidden_size, _PUBLISHED_UTILISATION
    slowest, fastest = 0.75, 2.0  # the published fractions are cautious
    fraction = float(np.interp(hidden, list(published), list(published.values())))
    reason = f"what others publish for hidden size {hidden}"
    if not hardware.is_gpu:
        fraction, reason = _CPU_UTILISATION[precision], "what tiny and mini reach on a core"
        slowest, fastest = 0.7, 1.4
    elif precision == "fp32" and fraction < _FP32_UTILISATION:
        fraction, reason = _FP32_UTILISATION, "a cautious guess for fp32"
    stated = f"not measured: {fraction:.1%} of {peak / 1e12:.3g} TFLOP/s in {precision} ({hardware.source}), {reason}"
    return Rate(fraction * peak, slowest, fastest, stated)


# Text

# The default corpus has 3.9 characters per token with a vocabulary of 8,192; English has 4.5 with 30,522, and Chinese
# in UTF-8 has 3 bytes per token. Compressed text and Parquet have about a third of its size.
_BYTES_PER_TOKEN, _COMPRESSION = 4.0, 3.0
_SPECIAL_TOKENS = 3  # of a pair of BERT; that others have one more or fewer is less than the estimate is off
_BERT_VOCAB_SIZE = 30_522


@dataclass(frozen=True, kw_only=True, slots=True)
class TextSize:
    """Size of the train split."""

    tokens: float | None
    """Number of tokens of the text, excluding special tokens; None if unknown."""
    basis: str
    """Source of the figures, as text."""
    lengths: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Sequences of an epoch, and their non-padding tokens, by sequence length: those that have been counted."""

    def sequences(self, length: int) -> float | None:
        """Return the sequences of an epoch: counted, or as many full ones as the text gives; None if unknown."""
        if length in self.lengths:
            return self.lengths[length][0]
        return None if self.tokens is None else self.tokens / (length - _SPECIAL_TOKENS)

    def tokens_per_sequence(self, length: int) -> float:
        """Return the non-padding tokens per sequence: the mean if examples were counted, otherwise the maximum."""
        sequences, tokens = self.lengths.get(length, (1.0, float(length)))
        return tokens / sequences


def text_size(corpus: CorpusConfig, *, artifacts: Path, metrics: Path, made_so: Mapping[str, bool]) -> TextSize:
    """Return the size of the text: counted in the examples, else estimated from the corpus or the user's files.

    Args:
        corpus: Configuration of the corpus.
        artifacts: Folder with `examples/`, if this stage has been run.
        metrics: Folder with the stages' headline metrics, which are in git.
        made_so: Result of `made_as_configured`.
    """
    examples, headline = artifacts / "examples", metrics / "corpus.json"
    if made_so["examples"] and (examples / MANIFEST_NAME).exists():
        manifest = read_manifest(examples, kind=KIND, format_version=FORMAT_VERSION)
        copies = manifest["dupe_factor"]  # of every pair, in one epoch
        counts = {int(length): facts["train"] for length, facts in manifest["lengths"].items()}
        return TextSize(
            tokens=manifest["corpus"]["train"]["tokens"],
            basis=f"counted in {examples}",
            lengths={length: (one["examples"] / copies, one["tokens"] / copies) for length, one in counts.items()},
        )
    if made_so["corpus"] and headline.exists():
        characters = read_json(headline)["train/characters"]
        basis = f"{headline}: {characters:,} characters of text, {_BYTES_PER_TOKEN:g} a token: an estimate"
        return TextSize(tokens=characters / _BYTES_PER_TOKEN, basis=basis)
    places = {f"{key}.{reader.user_data}": reader.user_path for key, reader in readers_of(corpus)}
    if not places or None in places.values():
        return _unknown_text(f"the corpus ({corpus.kind}) has not been made yet (dvc repro corpus)")
    files = []
    for key, place in places.items():  # the weights of sources are not counted
        try:
            files += find_files(str(Path(place or "").expanduser()), (), Counter())
        except DataError:
            return _unknown_text(f"nothing is at {place} ({key})")
    suffixes = (*COMPRESSED_SUFFIXES, ".parquet")
    sizes = [file.path.stat().st_size * (_COMPRESSION if file.path.suffix in suffixes else 1) for file in files]
    named, size = ", ".join(map(str, places.values())), sum(sizes)
    basis = f"{named}: {len(files):,} files, about {size / 1e6:,.1f} MB, {_BYTES_PER_TOKEN:g} a token: an estimate"
    return TextSize(tokens=size / _BYTES_PER_TOKEN, basis=basis)


def _unknown_text(why: str) -> TextSize:
    return TextSize(tokens=None, basis=f"unknown: {why}; say it with plan.corpus_tokens=")


def vocab_size(tokenizer: TokenizerConfig, *, artifacts: Path, made_so: Mapping[str, bool]) -> int:
    """Return the vocabulary size: that of the artifact, otherwise as configured, otherwise (hub name) that of BERT."""
    if made_so.get("examples") and (artifacts / "tokenizer" / MANIFEST_NAME).exists():
        return int(read_json(artifacts / "tokenizer" / MANIFEST_NAME)["vocab_size"])
    if isinstance(tokenizer, TrainedTokenizerConfig | ByteBpeTokenizerConfig):
        return tokenizer.vocab_size
    added = tokenizer.num_new if isinstance(tokenizer, ExtendedTokenizerConfig) else 0
    path = Path(tokenizer.path or "").expanduser()  # never empty: the configuration refuses that
    if path.is_dir():
        return Tokenizer.load(path).vocab_size + added
    return (len(read_vocabulary(path, lowercase=True).tokens) if path.exists() else _BERT_VOCAB_SIZE) + added


def made_as_configured(lock: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, bool]:
    """Return whether the artifacts of `corpus` and `examples` match the text and vocabulary of the configuration.

    Args:
        lock: Content of dvc.lock; a section that it does not have is unknown and counts as matching.
        present: Configured sections, as plain data.
    """
    made_with: dict[str, Any] = {}
    for stage in (lock.get("stages") or {}).values():
        made_with.update((stage.get("params") or {}).get("params.yaml") or {})

    def same(section: str) -> bool:
        return section not in made_with or made_with[section] == present.get(section)

    is_default = (present.get("corpus") or {}).get("kind") == "python_docs"
    corpus = same("corpus") and (not is_default or same("python_docs"))
    return {"corpus": corpus, "examples": corpus and same("tokenizer")}


# The forecast


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseForecast:
    """Forecast of one phase."""

    steps: int
    max_length: int
    global_batch_size: int
    tokens: float
    """Number of non-padding tokens; an upper bound if no examples were counted."""
    targets: float
    """Number of tokens that are predicted."""
    epochs: float | None
    """Number of passes over the train text; None if its size is unknown."""
    flops: float
    """FLOPs for the non-padding tokens."""
    hours: float
    rate: Rate
    launches_take_longest: bool
    """Whether kernel launches take longer than computing, because the passes are small."""
    micro_batch_size: int
    memory: Memory
    fitting_micro_batch_size: int
    """Largest power of two that fits the memory of one device; 0 if none does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """Forecast of a whole run."""

    hardware: Hardware
    num_devices: int
    text: TextSize
    parameters: int
    embedding_parameters: int
    encoder_parameters: int
    phases: tuple[PhaseForecast, ...]

    def total(self, name: str) -> float:
        """Return the sum of a figure over the phases."""
        return float(sum(getattr(phase, name) for phase in self.phases))

    @property
    def epochs(self) -> float | None:
        """Number of passes over the train text; None if its size is unknown."""
        epochs = [phase.epochs for phase in self.phases if phase.epochs is not None]
        return sum(epochs) if len(epochs) == len(self.phases) else None

    def hours(self) -> tuple[float, float, float]:
        """Return the hours as expected, at best and at worst."""
        best = sum(phase.hours / phase.rate.fastest for phase in self.phases)
        return self.total("hours"), best, sum(phase.hours / phase.rate.slowest for phase in self.phases)

    def money(self, price_per_hour: float) -> tuple[float, ...]:
        """Return the cost of the hours on all devices, as expected, at best and at worst."""
        return tuple(hours * self.num_devices * price_per_hour for hours in self.hours())

    @property
    def fullest(self) -> PhaseForecast:
        """Phase that needs the most memory."""
        return max(self.phases, key=lambda phase: phase.memory.total)

    @property
    def fits(self) -> bool:
        """Whether the run fits the memory of a device."""
        return self.fullest.memory.total <= self.hardware.usable_bytes

    @property
    def fitting_micro_batch_size(self) -> int:
        """`runtime.micro_batch_size` with which every phase fits; 0 if there is none."""
        return min(phase.fitting_micro_batch_size for phase in self.phases)


def forecast(
    training: Training,
    hardware: Hardware,
    text: TextSize,
    *,
    num_devices: int = 1,
    records: Sequence[Mapping[str, Any]] = (),
) -> Forecast:
    """Forecast a training run without running anything.

    Raises:
        ConfigError: A batch has fewer sequences than there are devices, or a micro-batch has no room for a sequence.
        MachineError: The device does not support `runtime.attention`.
    """
    phases = []
    for index, phase in enumerate(training.phases):
        if phase.global_batch_size < num_devices:
            raise ConfigError(
                f"pretrain.phases[{index}].global_batch_size is {phase.global_batch_size}, fewer than the "
                f"{num_devices} devices. Give every device at least one sequence a step."
            )
        length, sequences = phase.max_length, phase.steps * phase.global_batch_size
        tokens_each, epoch = text.tokens_per_sequence(length), text.sequences(length)
        tokens, flops = sequences * tokens_each, training.flops_per_token(length)
        share = -(-phase.global_batch_size // num_devices)
        at_once = min(share, rows_at_once(training.runtime, length) or share)
        rate = rate_of(training, length, hardware, records)
        # Rows are computed whole unless they are packed.
        # Segments that are compared are sequences of their own, two for an example.
        num_rows = 1 if training.objective.pairs_together is None else 2
        fill, kernel = tokens_each / length, training.attention(length)
        is_packed = packs(training.runtime, fill=fill / num_rows, attention=kernel)
        computed = sequences * length * (fill if is_packed else num_rows) * flops
        computing_s = computed / (rate.flops_per_s * num_devices)
        passes = math.ceil(phase.global_batch_size / num_devices / at_once)
        launch_s = _LAUNCH_S + training.model.num_hidden_layers * _LAUNCH_OF_LAYER_S
        launching_s = phase.steps * passes * launch_s if hardware.is_gpu else 0.0
        efficiency = 1.0 if num_devices == 1 else EFFICIENCY_OF_SEVERAL
        planned = PhaseForecast(
            **asdict(phase),
            tokens=tokens,
            targets=training.mask_prob * (tokens - (1 + training.objective.num_segments) * sequences),
            epochs=None if epoch is None else sequences / epoch,
            flops=tokens * flops,
            hours=max(computing_s, launching_s) / efficiency / 3600,
            rate=rate,
            launches_take_longest=launching_s > computing_s,
            micro_batch_size=at_once,
            memory=step_memory(training, length, at_once),
            fitting_micro_batch_size=largest_fitting(training, length, hardware.usable_bytes),
        )
        phases.append(planned)
    return Forecast(
        hardware=hardware,
        num_devices=num_devices,
        text=text,
        parameters=training.num_parameters,
        embedding_parameters=num_embedding_parameters(training.model, vocab_size=training.vocab_size),
        encoder_parameters=num_encoder_parameters(training.model),
        phases=tuple(phases),
    )


# The page

_WIDTH, _LABEL = 100, 9


def page(found: Forecast, training: Training, price_per_hour: float | None) -> str:
    """Format the forecast: the run, what it takes, and the two rules."""
    model, text, fullest = training.model, found.text, found.fullest
    embeddings, layers = found.embedding_parameters, found.encoder_parameters
    parts = {"embeddings": embeddings, "layers": layers, "heads": found.parameters - embeddings - layers}
    listed = ", ".join(f"{three_digits(number)} {name}" for name, number in parts.items())
    run = {
        "model": f"{model.num_hidden_layers} layers, hidden {model.hidden_size}, {training.vocab_size:,} tokens: "
        f"{three_digits(found.parameters)} parameters ({listed})",
        "text": text.basis if text.tokens is None else f"{three_digits(text.tokens)} tokens to train on ({text.basis})",
    }
    middle, best, worst = map(rough_duration, found.hours())
    time = [f"{middle}, between {best} and {worst}, for pretraining alone, without text, fine-tuning and export"]
    time += dict.fromkeys(phase.rate.basis for phase in found.phases)
    if found.num_devices > 1:
        time.append(f"{found.num_devices} devices compute {EFFICIENCY_OF_SEVERAL:.0%} of the time, an assumption")
    if any(phase.launches_take_longest for phase in found.phases):
        time.append("steps are so small that starting them takes longest: larger batches cost no more time")
    takes = {"time": "; ".join(time)}
    if price_per_hour is not None:
        middle, best, worst = (f"{cost:,.2f}" for cost in found.money(price_per_hour))
        takes["money"] = f"{middle}, between {best} and {worst}, at {price_per_hour:g} an hour for each device"
    takes["memory"] = (
        f"{_gigabytes(fullest.memory.total)} ± 25 % of the {_gigabytes(found.hardware.usable_bytes)} that a device has "
        f"for tensors, with {fullest.micro_batch_size} sequences of {fullest.max_length} at once: "
        + ", ".join(f"{name} {_gigabytes(size)}" for name, size in asdict(fullest.memory).items())
    )
    rules = {"data": data_rule(found, training), "size": size_rule(found)}
    head = f"On {found.num_devices} x {found.hardware.title}, in {training.device.precision}:"
    return "\n\n".join([head, _paragraphs(run), _table(found), _paragraphs(takes), _paragraphs(rules)])


def data_rule(found: Forecast, training: Training) -> str:
    """Judge the tokens of the run: are they enough for the parameters, and new enough?

    Both papers measured decoders. An encoder learns from a token when it is a target, so targets are counted here;
    published encoders agree (BERT: 40 epochs, arXiv 1810.04805, A.2; 64 passes cost a denoising T5 almost nothing,
    arXiv 1910.10683, section 3.4.2). For encoders 10 to 100 times as many tokens may be best (Dervishi et al.,
    "Training compute-optimal transformer encoder models", EMNLP 2025, abstract).
    """
    ratio, epochs, most = (
        found.total("targets") / found.encoder_parameters,
        found.epochs,
        MAX_EPOCHS / training.mask_prob,
    )
    enough = "enough" if ratio >= TOKENS_PER_PARAMETER else "too few: more steps or a smaller model learn more"
    made = "an unknown number" if epochs is None else _epochs(epochs)
    return (
        f"{TOKENS_PER_PARAMETER:g} tokens per parameter (Hoffmann et al., arXiv 2203.15556). Only targets teach an "
        f"encoder: {three_digits(found.total('targets'))} of them are {ratio:.3g} per parameter of the layers, "
        f"{enough}. Up to {MAX_EPOCHS:g} epochs are as good as new text (Muennighoff et al., arXiv 2305.16264); with "
        f"{training.mask_prob:.0%} targets that is {most:.3g} epochs; this run makes {made}"
        + (": more text would teach more." if epochs is not None and epochs > most else ".")
    )


def size_rule(found: Forecast) -> str:
    """Judge the size of the model and of the micro-batch: what fits into the memory of one device."""
    fixed = found.fullest.memory.fixed / found.parameters
    size, verdict = found.fitting_micro_batch_size, "This run fits."
    if not found.fits and size:
        verdict = f"THIS RUN DOES NOT FIT. It does with runtime.micro_batch_size={size}, which changes no result."
    elif not found.fits:
        verdict = "THIS RUN DOES NOT FIT, not even one sequence at once. Take a smaller model or a larger device."
    return (
        f"{fixed:.3g} bytes per parameter for weights, gradients and optimizer state (as in Rajbhandari et al., arXiv "
        f"1910.02054, section 3.1): at most {three_digits(found.hardware.usable_bytes / fixed)} parameters fit, fewer "
        f"with activations. {verdict}"
    )


def _table(found: Forecast) -> str:
    rows = [["phase", "steps", "length", "batch", "tokens", "epochs", "FLOP", "tokens/s", "memory", "time"]]

    def add(name: str, phases: Forecast, length: str, batch: str) -> None:
        tokens, hours, flops = phases.total("tokens"), phases.total("hours"), f"{phases.total('flops'):.3g}"
        work = [three_digits(tokens), _epochs(phases.epochs), flops, three_digits(tokens / (3600 * hours))]
        memory = _gigabytes(phases.fullest.memory.total)
        rows.append([name, f"{phases.total('steps'):,.0f}", length, batch, *work, memory, rough_duration(hours)])

    for number, phase in enumerate(found.phases, start=1):
        add(str(number), replace(found, phases=(phase,)), str(phase.max_length), str(phase.global_batch_size))
    if len(found.phases) > 1:
        add("all", found, "", "")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows]
    lines = ["  ".join(row) for row in rows]
    uncounted = sorted({phase.max_length for phase in found.phases} - found.text.lengths.keys())
    if uncounted:
        lengths = ", ".join(map(str, uncounted))
        lines.append(f"Tokens: at most. No examples of length {lengths} have been counted (dvc repro examples).")
    return "\n".join(lines)


def _paragraphs(texts: Mapping[str, str]) -> str:
    """Wrap texts into lines, with their labels in a column to the left."""
    indent = " " * _LABEL
    return "\n".join(
        textwrap.fill(
            text, _WIDTH, initial_indent=label.ljust(_LABEL), subsequent_indent=indent, break_on_hyphens=False
        )
        for label, text in texts.items()
    )


def _epochs(epochs: float | None) -> str:
    return "?" if epochs is None else f"{epochs:.3g}" if epochs < 1000 else f"{epochs:,.0f}"


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size < 1e10 else f"{size / 1e9:.1f} GB"


def default_run_text(records: Sequence[Mapping[str, Any]], *, precision: Precision, flops: float, threads: int) -> str:
    """Forecast the minutes of the default pipeline on this machine, from records of benchmarks/default_run.py.

    What trains is scaled by the FLOP/s of large matrix products; reading text and writing reports is not. Between
    precisions only pretraining is scaled: the products of fine-tuning are too small to gain from bf16.
    """
    record = min(records, key=lambda one: (one["precision"] != precision, abs(math.log(one["matmul_flops"] / flops))))
    run, slower = record["runs"][0], record["matmul_flops"] / flops
    tasks = sum(seconds for stage, seconds in run["seconds"].items() if stage.startswith("sweep"))
    trained = run["seconds"]["pretrain"] + (tasks if record["precision"] == precision else 0.0)
    pretraining, total = run["seconds"]["pretrain"] * slower, run["wall_s"] + (slower - 1) * trained
    return (
        f"The default pipeline takes about {max(1, round(total / 60))} minutes on this machine when nothing else runs "
        f"({threads} threads, {precision}, {flops / 1e9:,.0f} GFLOP/s), {max(1, round(pretraining / 60))} of them "
        "pretraining. What is up to date is skipped."
    )
