"""Planner: parameters, FLOPs, memory, hours and money of the configured pretraining on named hardware.

Nothing is run and PyTorch is not imported, except to measure this machine's matrix products. Two rules judge the run:
data (are there tokens enough for the parameters, and is the text read too often?) and size (does it fit into memory?).
"""

import math
import os
import re
import textwrap
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from bertline.config import PipelineConfig
from bertline.corpus.files import COMPRESSED_SUFFIXES, find_files
from bertline.corpus.registry import CorpusConfig, texts_of
from bertline.examples.masking import max_targets
from bertline.examples.store import read_examples_manifest
from bertline.foundation.checked import Checked, PositiveInt, above, at_least, below
from bertline.foundation.errors import ConfigError, DataError
from bertline.foundation.files import read_json
from bertline.foundation.formats import rough_duration, three_digits
from bertline.foundation.manifests import MANIFEST_NAME
from bertline.foundation.parallel import processor_name
from bertline.modeling.attention_choice import AttentionDevice, AttentionKind, stores_scores
from bertline.modeling.config import flops_per_token, num_embedding_parameters, num_encoder_parameters, num_parameters
from bertline.pretraining.config import PhaseConfig
from bertline.pretraining.plan import packs, pretraining_attention, rows_at_once
from bertline.stages.base import ARTIFACTS, METRICS
from bertline.tokenization.config import (
    ByteBpeTokenizerConfig,
    ExtendedTokenizerConfig,
    TokenizerConfig,
    TrainedTokenizerConfig,
)
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import read_vocabulary
from bertline.training.config import Precision

Measurements = Sequence[Mapping[str, Any]]
"""Results of benchmarks/pretraining_step.py, each with the name of its `file`."""
THIS_MACHINE = "cpu"

TOKENS_PER_PARAMETER = 20.0
"""Tokens per parameter of a decoder, which predicts every token (Hoffmann et al., arXiv 2203.15556, section 3.4)."""
MAX_EPOCHS = 4.0
"""Epochs of one text that are nearly as good as new text (Muennighoff et al., arXiv 2305.16264, section 6)."""
EFFICIENCY_OF_SEVERAL = 0.9
"""Part of their time that several devices compute. Cautious for one machine: NVIDIA's BERT is 7.9 times as fast on 8
GPUs (DeepLearningExamples). Optimistic for a slow network: see docs/howto/several-machines.md."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanConfig(Checked):
    """Arguments of the planner (conf/plan.yaml)."""

    device: str
    """`cpu` for this machine's processor, or a GPU in `planning.GPUS`; converted to lower case."""
    num_devices: PositiveInt
    """Number of devices of the run; they divide the time, with an efficiency of 90 %."""
    price_per_hour: Annotated[float, at_least(0), below(math.inf)] | None
    """Price of one device per hour, in any currency; None omits costs."""
    corpus_tokens: Annotated[float, above(0), below(math.inf)] | None
    """Number of tokens of the text, if it is not on this machine; None looks at artifacts/ and `corpus.path`."""
    pipeline: bool
    """Whether to forecast the whole default pipeline on this machine, in one line, and nothing else."""

    def check(self) -> None:
        object.__setattr__(self, "device", self.device.lower())  # users write A100
        if self.device not in (THIS_MACHINE, *GPUS):
            raise ValueError(
                f"device is {self.device!r}, which is not in the table. Known: {THIS_MACHINE} (this machine's "
                f"processor), {', '.join(GPUS)}. For another one take the nearest below it"
            )
        if self.device == THIS_MACHINE and self.num_devices != 1:
            raise ValueError(f"num_devices is {self.num_devices}, but device is {THIS_MACHINE}, this machine: give 1")


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
        return self.name != THIS_MACHINE

    @property
    def usable_bytes(self) -> int:
        """Memory for tensors: without the driver's context of a GPU, and what fragmentation wastes."""
        return int((self.memory_bytes - (1e9 if self.is_gpu else 0)) * 0.95)

    def attention_device(self, asked: Literal["auto", "fp32", "bf16"]) -> AttentionDevice:
        """Return the kind of device and the precision of a run on it; `auto` is bf16 if the hardware supports it."""
        if asked == "bf16" and self.bf16_flops is None:
            raise ConfigError(
                f"pretrain.precision is bf16, but {self.title} has no bf16 in hardware and would emulate it, far "
                "slower than fp32. Use pretrain.precision=auto or fp32, or a newer device."
            )
        precision: Precision = "fp32" if asked == "fp32" or self.bf16_flops is None else "bf16"
        if not self.is_gpu:
            return AttentionDevice(type="cpu", precision=precision)
        # Ampere introduced both bf16 and the features that the kernel for packed rows needs.
        capability = (7, 0) if self.bf16_flops is None else (8, 0)
        return AttentionDevice(type="cuda", precision=precision, compute_capability=capability)


# Dense rates of the vendors' data sheets and, for RTX, of the architectures' whitepapers; rates
# with structured sparsity are twice as high. A B200 is an eighth of a DGX B200.
_GPUS = (
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
GPUS = {gpu.name: gpu for gpu in _GPUS}


def this_machine(asked: Literal["auto", "fp32", "bf16"], *, num_threads: int | None) -> Hardware:
    """Return this machine's processor, with its rate of matrix products in the precision that a run would use."""
    # Imported here because PyTorch takes seconds to import, and a plan for a GPU does not need it.
    import torch

    from bertline.training.devices import resolve_precision
    from bertline.training.matmul_rate import peak_rate

    if num_threads is not None:
        torch.set_num_threads(num_threads)
    device = torch.device("cpu")
    precision = resolve_precision(asked, device)
    rate = peak_rate(device, precision)
    return Hardware(
        name=THIS_MACHINE,
        title="this machine's processor",
        bf16_flops=rate if precision == "bf16" else None,
        fp32_flops=rate,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        pattern=f"^{re.escape(processor_name())}$",
        source="large matrix products on this machine",
        num_threads=torch.get_num_threads(),
    )


# The training, and its memory


@dataclass(frozen=True, slots=True)
class Training:
    """The configured pretraining, on devices of one kind."""

    config: PipelineConfig
    vocab_size: int
    device: AttentionDevice

    @property
    def phases(self) -> list[PhaseConfig]:
        """Phases that the run reaches; the last one has only the steps that are run (`pretrain.max_steps`)."""
        phases, left = [], self.config.pretrain.num_steps
        for phase in self.config.pretrain.phases:
            if left > 0:
                phases.append(replace(phase, steps=min(phase.steps, left)))
            left -= phase.steps
        return phases

    @property
    def num_parameters(self) -> int:
        with_pooler = self.config.objective.with_pooler
        return num_parameters(self.config.model, vocab_size=self.vocab_size, with_pooler=with_pooler)

    def targets(self, length: int) -> int:
        """Return the number of masked positions per sequence; all are computed, though the last is not always used."""
        mask_prob, num_segments = self.config.examples.masking.mask_prob, self.config.objective.num_segments
        return max_targets(length, mask_prob, num_segments=num_segments)

    def flops_per_token(self, length: int) -> float:
        """Return the FLOPs per real token of sequences of this length."""
        part, with_pooler = self.targets(length) / length, self.config.objective.with_pooler
        return flops_per_token(
            self.config.model, vocab_size=self.vocab_size, seq_len=length, target_fraction=part, with_pooler=with_pooler
        )

    def attention(self, length: int) -> AttentionKind:
        """Return the attention kernel that the run will choose; raises MachineError as the run would."""
        return pretraining_attention(self.config.runtime, self.config.model, self.device, length).kind


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
        return self.fixed + self.activations + self.logits


def step_memory(training: Training, length: int, sequences: int) -> Memory:
    """Estimate the memory of one step on one device within some 25 % (as Korthikanti et al., arXiv 2205.05198, 4.1).

    Weights, gradients and optimizer state are in fp32; bf16 adds a copy of the weights. A layer keeps, in bytes per
    position (I intermediate size, H hidden size, b bytes per element, S sequence length): input and output of the
    activation function, 2 b I; query, key, value and context, 4 b H; inputs of the matrix products and of both
    LayerNorms, which stay in fp32, 12 H in bf16 and 16 H in fp32; dropout masks, 1 byte per element; and without fused
    attention S probabilities per head. The last layer keeps its input, keys and values, 3 b H, for all positions, the
    rest only for those that the heads read.
    """
    config, model, with_pooler = training.config, training.config.model, training.config.objective.with_pooler
    hidden, parameters, targets = model.hidden_size, training.num_parameters, training.targets(length)
    is_bf16 = training.device.precision == "bf16"
    width = 2 if is_bf16 else 4
    layer_position = 2 * width * model.intermediate_size + 4 * width * hidden + (12 if is_bf16 else 16) * hidden
    has_dropout, dropout_prob = model.hidden_dropout_prob > 0, model.attention_probs_dropout_prob
    layer_position += 2 * hidden * has_dropout
    if stores_scores(training.attention(length), training.device, dropout_prob=dropout_prob):
        # Probabilities in fp32, a copy in the dtype of the next matrix product, and a mask.
        score = 4 + (2 if is_bf16 else 0) + (1 if dropout_prob else 0)
        layer_position += model.num_attention_heads * length * score
    last_layer_position = 3 * width * hidden
    embedding_position = (4 + width + has_dropout) * hidden
    # A compiled step keeps the logit and its gradient; others also fp32 copies, the softmax and
    # their gradients.
    logit = 20 if config.runtime.compile == "off" else 2 * width
    positions, read = sequences * length, sequences * min(targets + with_pooler, length)
    vectors = 9 * hidden + model.intermediate_size  # biases and LayerNorms of a layer
    matrices = num_encoder_parameters(model) - model.num_hidden_layers * vectors
    moments, of_layers = config.optimizer.moments, config.optimizer.moments_of_layers
    layers = positions * ((model.num_hidden_layers - 1) * layer_position + last_layer_position)
    layers += read * (layer_position - last_layer_position)
    return Memory(
        weights=parameters * (6 if is_bf16 else 4),
        gradients=parameters * 4,
        optimizer=4 * (moments * (parameters - matrices) + (moments if of_layers is None else of_layers) * matrices),
        activations=layers + positions * embedding_position,
        logits=sequences * targets * training.vocab_size * logit,
    )


# Speed

# Published model FLOPs utilization by hidden size: the five sizes of Ettin (arXiv 2507.11412; hours
# on 4 H100 in its README); 128 is extrapolated. On A100 MosaicBERT reaches 0.31 at 768 (arXiv
# 2312.17482) and NVIDIA 0.45 at 1,024 (DeepLearningExamples). Without tensor cores, memory and
# kernel launches are no bottleneck.
_PUBLISHED_SIZES, _PUBLISHED_UTILISATION = (128, 256, 384, 512, 768, 1024), (0.02, 0.055, 0.084, 0.16, 0.24, 0.34)
_FP32_UTILISATION = 0.4
# Compiled steps of tiny and mini compared with matrix products in the same process, on one core
# with AVX512-BF16: 0.41 and 0.49 in bf16, mini 0.83 in fp32.
_CPU_UTILISATION = {"bf16": 0.4, "fp32": 0.7}
# Seconds that a forward and backward pass takes at least on a GPU, due to kernel launches, and for
# each layer more. Cautious guesses.
_LAUNCH_S, _LAUNCH_OF_LAYER_S = 2e-3, 0.3e-3


class Rate(NamedTuple):
    """Model FLOPs per second of one device, with their uncertainty."""

    flops_per_s: float
    slowest: float
    """Rate in the worst case as a multiple of `flops_per_s`; `fastest` is that in the best case."""
    fastest: float
    basis: str


def rate_of(training: Training, length: int, hardware: Hardware, measurements: Measurements) -> Rate:
    """Return the rate of the nearest record on this hardware; without one near enough, a stated fraction of the peak.

    A record is near up to four times the length and three times the FLOPs per token; the nearest length, then the
    nearest model, then the same dropout decide.
    """
    precision, model = training.device.precision, training.config.model

    def distance(record: Mapping[str, Any]) -> tuple[float, float, bool]:
        ratios = record["seq_len"] / length, record["flops_per_token"] / training.flops_per_token(length)
        length_ratio, model_ratio = (max(ratio, 1 / ratio) for ratio in ratios)
        has_other_dropout = (record["dropout"] > 0) != (model.hidden_dropout_prob > 0)
        return length_ratio, round(model_ratio, 1), has_other_dropout

    of_hardware = (
        record
        for record in measurements
        if record["precision"] == precision
        and re.search(hardware.pattern, record["device"])
        and hardware.num_threads in (None, record["threads"])
    )
    near = (record for record in of_hardware if distance(record)[0] <= 4 and distance(record)[1] <= 3)
    if (record := min(near, key=distance, default=None)) is not None:
        flops_per_s = record["tokens_per_s"] * record["flops_per_token"]
        if distance(record) == (1, 1, False):
            return Rate(flops_per_s, 0.9, 1.1, f"measured: {record['file']}")
        return Rate(flops_per_s, 0.7, 1.3, f"measured on the model nearest to it: {record['file']}")
    if not hardware.is_gpu:
        fraction, slowest, fastest = _CPU_UTILISATION[precision], 0.7, 1.4
        reason = "what tiny and mini reach on a core"
    else:
        fraction = float(np.interp(model.hidden_size, _PUBLISHED_SIZES, _PUBLISHED_UTILISATION))
        slowest, fastest = 0.75, 2.0  # the published fractions are cautious
        reason = f"what others publish for hidden size {model.hidden_size}"
        if precision == "fp32" and fraction < _FP32_UTILISATION:
            fraction, reason = _FP32_UTILISATION, "a cautious guess for fp32"
    peak = hardware.bf16_flops if precision == "bf16" and hardware.bf16_flops else hardware.fp32_flops
    basis = f"not measured: {fraction:.1%} of {peak / 1e12:.3g} TFLOP/s in {precision} ({hardware.source}), {reason}"
    return Rate(fraction * peak, slowest, fastest, basis)


# Text

# The default corpus has 3.9 characters per token with a vocabulary of 8,192; English has 4.5 with
# 30,522, and Chinese in UTF-8 has 3 bytes per token. Compressed text and Parquet have about a third
# of its size.
_BYTES_PER_TOKEN, _COMPRESSION = 4.0, 3.0
_SPECIAL_TOKENS = 3  # of a pair of BERT; that others have one more or fewer is less than the estimate is off
_BERT_VOCAB_SIZE = 30_522
_MADE_OF = frozenset({"corpus", "python_docs", "tokenizer"})
"""Sections that the examples are made with; the corpus is made with all of them but the tokenizer."""


@dataclass(frozen=True, slots=True)
class TextSize:
    """Size of the train split."""

    tokens: float | None
    """Number of tokens of the text, excluding special tokens; None if unknown."""
    basis: str
    """Source of the figures, as text."""
    lengths: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Sequences of an epoch, and their non-padding tokens, by sequence length: those that have been counted."""

    def epoch(self, length: int) -> tuple[float | None, float]:
        """Return the sequences of an epoch and the tokens of each: counted, else as many full as the text gives."""
        if length in self.lengths:
            sequences, tokens = self.lengths[length]
            return sequences, tokens / sequences
        return None if self.tokens is None else self.tokens / (length - _SPECIAL_TOKENS), float(length)


def outdated_sections(locked: Mapping[str, Any], configured: Mapping[str, Any]) -> Set[str]:
    """Return the sections that differ between the stages of dvc.lock, so the artifacts, and the configuration."""
    made_with: dict[str, Any] = {}
    for stage in locked.values():
        made_with |= stage.get("params", {}).get("params.yaml", {})
    return {name for name, section in made_with.items() if section != configured.get(name)}


def text_size(corpus: CorpusConfig, changed: Set[str]) -> TextSize:
    """Return the size of the text: counted in the examples, else estimated from the corpus or the user's files.

    Artifacts are used unless they were made with other sections, those in `changed` (see `outdated_sections`).
    """
    examples, headline = ARTIFACTS / "examples", METRICS / "corpus.json"
    if changed.isdisjoint(_MADE_OF) and (examples / MANIFEST_NAME).exists():
        manifest = read_examples_manifest(examples)
        copies = manifest["dupe_factor"]  # of every pair, in one epoch
        counts = {int(length): facts["train"] for length, facts in manifest["lengths"].items()}
        lengths = {length: (one["examples"] / copies, one["tokens"] / copies) for length, one in counts.items()}
        return TextSize(manifest["corpus"]["train"]["tokens"], f"counted in {examples}", lengths)
    if changed.isdisjoint(_MADE_OF - {"tokenizer"}) and headline.exists():
        characters = read_json(headline)["train/characters"]
        return _text(characters, f"{headline}: {characters:,} characters of text")
    texts = list(texts_of(corpus))
    if not texts or not all(text.is_here for text in texts):
        return _text(None, f"the corpus ({corpus.kind}) has not been made yet (dvc repro corpus)")
    files = []
    for text in texts:  # the weights of sources are not counted
        try:
            files += find_files(str(Path(text.path).expanduser()), ())[0]
        except DataError:
            return _text(None, f"nothing is at {text.path} ({text.key})")
    suffixes = (*COMPRESSED_SUFFIXES, ".parquet")
    size = sum(file.size * (_COMPRESSION if file.name.endswith(suffixes) else 1) for file in files)
    return _text(size, f"{', '.join(text.path for text in texts)}: {len(files):,} files, about {size / 1e6:,.1f} MB")


def _text(size: float | None, source: str) -> TextSize:
    """Return the size of a text of so many bytes or characters; None is unknown, for the reason in `source`."""
    if size is None:
        return TextSize(None, f"unknown: {source}; say it with plan.corpus_tokens=")
    return TextSize(size / _BYTES_PER_TOKEN, f"{source}, {_BYTES_PER_TOKEN:g} a token: an estimate")


def vocab_size(tokenizer: TokenizerConfig, changed: Set[str]) -> int:
    """Return the vocabulary size: that of the artifact, otherwise as configured, otherwise (hub name) that of BERT."""
    manifest = ARTIFACTS / "tokenizer" / MANIFEST_NAME
    if changed.isdisjoint(_MADE_OF) and manifest.exists():
        return int(read_json(manifest)["vocab_size"])
    if isinstance(tokenizer, TrainedTokenizerConfig | ByteBpeTokenizerConfig):
        return tokenizer.vocab_size
    num_added = tokenizer.num_new if isinstance(tokenizer, ExtendedTokenizerConfig) else 0
    path = Path(tokenizer.path or "").expanduser()  # never empty: the configuration refuses that
    if path.is_dir():
        return Tokenizer.load(path).vocab_size + num_added
    return (len(read_vocabulary(path, lowercase=True).tokens) if path.exists() else _BERT_VOCAB_SIZE) + num_added


# The forecast


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseForecast(PhaseConfig):
    """Forecast of one phase."""

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
        return None if self.text.tokens is None else self.total("epochs")

    def hours(self) -> tuple[float, float, float]:
        """Return the hours as expected, at best and at worst."""
        best = sum(phase.hours / phase.rate.fastest for phase in self.phases)
        return self.total("hours"), best, sum(phase.hours / phase.rate.slowest for phase in self.phases)

    def money(self, price_per_hour: float) -> tuple[float, ...]:
        """Return the cost of `hours` on all devices."""
        return tuple(hours * self.num_devices * price_per_hour for hours in self.hours())

    @property
    def fullest(self) -> PhaseForecast:
        """Phase that needs the most memory."""
        return max(self.phases, key=lambda phase: phase.memory.total)

    @property
    def fits(self) -> bool:
        return self.fullest.memory.total <= self.hardware.usable_bytes

    @property
    def fitting_micro_batch_size(self) -> int:
        """Size with which every phase fits; 0 if there is none."""
        return min(phase.fitting_micro_batch_size for phase in self.phases)


def forecast(
    training: Training, hardware: Hardware, text: TextSize, num_devices: int, measurements: Measurements = ()
) -> Forecast:
    """Forecast a training run without running anything."""
    model, objective, runtime = training.config.model, training.config.objective, training.config.runtime
    phases = []
    for index, phase in enumerate(training.phases):
        if phase.global_batch_size < num_devices:
            raise ConfigError(
                f"pretrain.phases[{index}].global_batch_size is {phase.global_batch_size}, fewer than the "
                f"{num_devices} devices. Give each at least one sequence a step."
            )
        length, sequences = phase.max_length, phase.steps * phase.global_batch_size
        epoch, tokens_each = text.epoch(length)
        tokens, flops = sequences * tokens_each, training.flops_per_token(length)
        share = math.ceil(phase.global_batch_size / num_devices)
        micro_batch_size = min(share, rows_at_once(runtime, length) or share)
        rate = rate_of(training, length, hardware, measurements)
        # Rows are computed whole unless they are packed; segments that are compared are rows of
        # their own, two each.
        num_rows = 1 if objective.pairs_together is None else 2
        is_packed = packs(runtime, fill=tokens_each / length / num_rows, attention=training.attention(length))
        computed_tokens = tokens if is_packed else num_rows * sequences * length
        computing_s = computed_tokens * flops / (rate.flops_per_s * num_devices)
        passes = phase.steps * math.ceil(share / micro_batch_size)
        launching_s = passes * (_LAUNCH_S + model.num_hidden_layers * _LAUNCH_OF_LAYER_S) if hardware.is_gpu else 0.0
        efficiency = 1.0 if num_devices == 1 else EFFICIENCY_OF_SEVERAL
        of_phase = PhaseForecast(
            **asdict(phase),
            tokens=tokens,
            targets=training.config.examples.masking.mask_prob * (tokens - (1 + objective.num_segments) * sequences),
            epochs=None if epoch is None else sequences / epoch,
            flops=tokens * flops,
            hours=max(computing_s, launching_s) / efficiency / 3600,
            rate=rate,
            micro_batch_size=micro_batch_size,
            memory=step_memory(training, length, micro_batch_size),
            fitting_micro_batch_size=largest_fitting(training, length, hardware.usable_bytes),
        )
        phases.append(of_phase)
    return Forecast(
        hardware=hardware,
        num_devices=num_devices,
        text=text,
        parameters=training.num_parameters,
        embedding_parameters=num_embedding_parameters(model, vocab_size=training.vocab_size),
        encoder_parameters=num_encoder_parameters(model),
        phases=tuple(phases),
    )


# The page


def page(outlook: Forecast, training: Training, price_per_hour: float | None) -> str:
    """Format the forecast: the run, what it takes, and the two rules."""
    model, text, fullest = training.config.model, outlook.text, outlook.fullest
    embeddings, layers = outlook.embedding_parameters, outlook.encoder_parameters
    parts = {"embeddings": embeddings, "layers": layers, "heads": outlook.parameters - embeddings - layers}
    middle, best, worst = map(rough_duration, outlook.hours())
    time = [f"{middle}, between {best} and {worst}, for pretraining alone, without text, fine-tuning and export"]
    time += dict.fromkeys(phase.rate.basis for phase in outlook.phases)
    if outlook.num_devices > 1:
        time.append(f"{outlook.num_devices} devices compute {EFFICIENCY_OF_SEVERAL:.0%} of the time, an assumption")
    money = ""
    if price_per_hour is not None:
        middle, best, worst = (f"{cost:,.2f}" for cost in outlook.money(price_per_hour))
        money = f"{middle}, between {best} and {worst}, at {price_per_hour:g} an hour for each device"
    run = {
        "model": f"{model.num_hidden_layers} layers, hidden {model.hidden_size}, {training.vocab_size:,} tokens: "
        f"{three_digits(outlook.parameters)} parameters "
        f"({', '.join(f'{three_digits(number)} {name}' for name, number in parts.items())})",
        "text": text.basis if text.tokens is None else f"{three_digits(text.tokens)} tokens to train on ({text.basis})",
    }
    takes = {
        "time": "; ".join(time),
        "money": money,
        "memory": f"{gigabytes(fullest.memory.total)} ± 25 % of the {gigabytes(outlook.hardware.usable_bytes)} that a "
        f"device has for tensors, with {fullest.micro_batch_size} sequences of {fullest.max_length} at once: "
        + ", ".join(f"{name} {gigabytes(size)}" for name, size in asdict(fullest.memory).items()),
    }
    rules = {"data": data_rule(outlook, training), "size": size_rule(outlook)}
    head = f"On {outlook.num_devices} x {outlook.hardware.title}, in {training.device.precision}:"
    return "\n\n".join([head, _paragraphs(run), _table(outlook), _paragraphs(takes), _paragraphs(rules)])


def data_rule(outlook: Forecast, training: Training) -> str:
    """Judge the tokens of the run: are they enough for the parameters, and new enough?

    Both papers measured decoders. An encoder learns from a token when it is a target, so targets are counted here, as
    published encoders agree (BERT: 40 epochs, arXiv 1810.04805, A.2). For encoders 10 to 100 times as many tokens may
    be best (Dervishi et al., "Training compute-optimal transformer encoder models", EMNLP 2025, abstract).
    """
    targets, epochs, mask_prob = outlook.total("targets"), outlook.epochs, training.config.examples.masking.mask_prob
    ratio, most = targets / outlook.encoder_parameters, MAX_EPOCHS / mask_prob
    return (
        f"{TOKENS_PER_PARAMETER:g} tokens per parameter (Hoffmann et al., arXiv 2203.15556). Only targets teach an "
        f"encoder: {three_digits(targets)} of them are {ratio:.3g} per parameter of the layers, "
        + ("enough" if ratio >= TOKENS_PER_PARAMETER else "too few: more steps or a smaller model learn more")
        + f". Up to {MAX_EPOCHS:g} epochs are as good as new text (Muennighoff et al., arXiv 2305.16264); with "
        f"{mask_prob:.0%} targets that is {most:.3g} epochs; this run makes "
        + ("an unknown number" if epochs is None else _epochs(epochs))
        + (": more text would teach more." if epochs is not None and epochs > most else ".")
    )


def size_rule(outlook: Forecast) -> str:
    """Judge the size of the model and of the micro-batch: what fits into the memory of one device."""
    fixed = outlook.fullest.memory.fixed / outlook.parameters
    fitting, verdict = outlook.fitting_micro_batch_size, "This run fits."
    if not outlook.fits and fitting:
        verdict = f"THIS RUN DOES NOT FIT. It does with runtime.micro_batch_size={fitting}, which changes no result."
    elif not outlook.fits:
        verdict = "THIS RUN DOES NOT FIT, not even one sequence at once. Take a smaller model or a larger device."
    return (
        f"{fixed:.3g} bytes per parameter for weights, gradients and optimizer state (as in Rajbhandari et al., arXiv "
        f"1910.02054, section 3.1): at most {three_digits(outlook.hardware.usable_bytes / fixed)} parameters fit, "
        f"fewer with activations. {verdict}"
    )


def _table(outlook: Forecast) -> str:
    phases = outlook.phases
    rows = [replace(outlook, phases=(phase,)) for phase in phases] + [outlook] * (len(phases) > 1)
    columns = {
        "phase": [f"{name:5}" for name in (*map(str, range(1, len(phases) + 1)), "all")],
        "steps": [f"{row.total('steps'):,.0f}" for row in rows],
        "length": [*(str(phase.max_length) for phase in phases), ""],
        "batch": [*(str(phase.global_batch_size) for phase in phases), ""],
        "tokens": [three_digits(row.total("tokens")) for row in rows],
        "epochs": [_epochs(row.epochs) for row in rows],
        "FLOP": [f"{row.total('flops'):.3g}" for row in rows],
        "tokens/s": [three_digits(row.total("tokens") / row.total("hours") / 3600) for row in rows],
        "memory": [gigabytes(row.fullest.memory.total) for row in rows],
        "time": [rough_duration(row.total("hours")) for row in rows],
    }
    widths = {name: max(map(len, (name, *cells))) for name, cells in columns.items()}
    padded = [[cell.rjust(widths[name]) for cell in (name, *cells)] for name, cells in columns.items()]
    lines = ["  ".join(row) for row in zip(*padded, strict=False)]  # a single phase has no line of all
    uncounted = sorted({phase.max_length for phase in phases} - outlook.text.lengths.keys())
    if uncounted:
        lengths = ", ".join(map(str, uncounted))
        lines.append(f"Tokens: at most. No examples of length {lengths} have been counted (dvc repro examples).")
    return "\n".join(lines)


def _paragraphs(texts: Mapping[str, str]) -> str:
    """Wrap texts into lines of 100 columns, with their labels in a column to the left; empty texts are left out."""
    wrap = partial(textwrap.fill, width=100, subsequent_indent=" " * 9, break_on_hyphens=False)
    return "\n".join(wrap(f"{label:9}{text}") for label, text in texts.items() if text)


def _epochs(epochs: float | None) -> str:
    return "?" if epochs is None else f"{epochs:.3g}" if epochs < 1000 else f"{epochs:,.0f}"


def gigabytes(size: float) -> str:
    """Format a number of bytes, with two decimals below 10 GB."""
    return f"{size / 1e9:.2f} GB" if size < 1e10 else f"{size / 1e9:.1f} GB"
