"""A checkpoint: a folder with config.json, weights as safetensors and a tokenizer, of any family, and what it is.

All of this is read once and without PyTorch; `modeling.weight_files` reads the weights themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open

from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import read_object, refuse_lfs_pointer
from bertline.modeling.config import LARGEST_SIZE, ModelConfig, Pooling
from bertline.modeling.families import CONFIG_NAME, Family, family_in
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import conversion_of, resolve_folder

WEIGHTS_NAME, MODULES_NAME = "model.safetensors", "modules.json"
POOLER = "bert.pooler."
MLM_HEAD = "cls.predictions."
"""Prefix of BERT's names of the weights of a masked language model head."""
POSITIONS = "bert.embeddings.position_embeddings.weight"
DECODER = "cls.predictions.decoder.weight"
WRAPPER = r"^(?:module\.|_orig_mod\.)+"
"""What `DataParallel` and `torch.compile`, one perhaps in the other, put before the names of all weights."""
_INDEX_NAME = "model.safetensors.index.json"
_PICKLE_NAMES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_DTYPES = ("F32", "F16", "BF16", "F64")
# Types of values of config.json, where it has them.
_TYPES = {
    "model_type": str, "architectures": list, "id2label": dict, "problem_type": str,
    "vocab_size": int, "pad_token_id": int, "max_position_embeddings": int, "num_hidden_groups": int,
}  # fmt: skip
_ACTIVATIONS: dict[str, Literal["gelu", "gelu_new", "relu"]] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "relu": "relu",
}
_REQUIRED = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_OPTIONAL = {
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}

_Architecture = Literal["BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """What a checkpoint's folder says of itself, with BERT's names whatever its family."""

    folder: Path
    family: Family
    settings: Mapping[str, Any]
    """config.json."""
    config: ModelConfig
    vocab_size: int
    """Number of word embeddings; those behind the tokens pad them to a round size."""
    pad_token_id: int

    @classmethod
    def open(cls, source: Checkpoint | Path | str, revision: str | None = None) -> Checkpoint:
        """Read the config.json of a folder or of a name on the hub (`resolve_folder`).

        Raises:
            ArtifactError: bertline does not compute this model, or config.json is damaged.
            DataError: It is neither a folder nor a hub name that can be reached.
        """
        if isinstance(source, Checkpoint):
            return source
        folder = source if isinstance(source, Path) else resolve_folder(source, revision)
        mapping, where = _read_config(folder), str(folder / CONFIG_NAME)
        family = family_in(mapping, where)
        settings = family.config_to_bert(mapping)
        return cls(
            folder=folder,
            family=family,
            settings=settings,
            config=model_config_in(settings, family, where),
            vocab_size=settings["vocab_size"],
            pad_token_id=settings.get("pad_token_id") or 0,
        )

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the folder.

        Raises:
            ArtifactError: It has more tokens than there are word embeddings.
        """
        tokenizer = Tokenizer.load(self.folder)
        if tokenizer.vocab_size > self.vocab_size:
            raise ArtifactError(
                f"{self.folder}: the tokenizer has {tokenizer.vocab_size:,} tokens, the embeddings only "
                f"{self.vocab_size:,} rows. They are not from the same training; copy the folder again."
            )
        return tokenizer

    @property
    def pooling(self) -> Pooling:
        """How the folder makes a vector of a text: `cls` if its modules say so, else the mean."""
        modules = read_object(self.folder / MODULES_NAME, expected=list, missing_ok=True)
        places = [str(module.get("path")) for module in modules if str(module.get("type")).endswith("Pooling")]
        settings = read_object(self.folder / places[0] / "config.json", missing_ok=True) if places else {}
        return "cls" if settings.get("pooling_mode") == "cls" or settings.get("pooling_mode_cls_token") else "mean"

    @property
    def num_unused_positions(self) -> int:
        """Number of rows of the position embeddings, in an adopted family, before that of position 0."""
        return 0 if self.family.wrapping else self.family.num_unused_positions(self.pad_token_id)

    @cached_property
    def _headers(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The dtype and the shape of each weight, by its name in the files."""
        headers = {}
        for _, shard in self.shards("np"):
            for key in shard.keys():  # noqa: SIM118
                header = shard.get_slice(key)
                headers[key] = header.get_dtype(), tuple(header.get_shape())
        return headers

    @cached_property
    def names(self) -> dict[str, str]:
        """BERT's current name of each weight, by its name in the files.

        Raises:
            ArtifactError: The folder has no safetensors file, or one is truncated or quantized.
        """
        keys = {key: re.sub(WRAPPER, "", key) for key in self._headers}
        wrappers = {key.removesuffix(name): key for key, name in keys.items()}
        if len(wrappers) > 1:
            raise ArtifactError(
                f"{self.folder} has {len(wrappers)} sets of weights, whose names begin otherwise: "
                f"{' and '.join(wrappers.values())} are examples. Save the model inside the wrapper alone."
            )
        heads = tuple(theirs for _, theirs in self.family.sequence_head)
        is_classifier = any(key.startswith(heads) for key in keys.values())
        names = {}
        for on_disk, key in keys.items():
            in_bert = self.family.to_bert(key, is_classifier=is_classifier)
            if in_bert is not None and (name := normalised_name(in_bert)) is not None:
                names[on_disk] = name
                if (dtype := self._headers[on_disk][0]) not in _DTYPES:
                    raise ArtifactError(
                        f"{self.folder}: {on_disk} has the dtype {dtype}; bertline reads {', '.join(_DTYPES)}. Its "
                        "weights are quantized: load the full-precision checkpoint instead."
                    )
        return names

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight, by BERT's current name; see `names`."""
        shapes = {name: self._headers[key][1] for key, name in self.names.items()}
        if POSITIONS in shapes:
            shapes[POSITIONS] = (shapes[POSITIONS][0] - self.num_unused_positions, *shapes[POSITIONS][1:])
        return shapes

    def has(self, prefix: str) -> bool:
        """Return whether a weight has a name that begins so."""
        return any(name.startswith(prefix) for name in self.names.values())

    @property
    def num_parameters(self) -> int:
        """Number of parameters, the tied decoder's once."""
        return sum(math.prod(shape) for name, shape in self.shapes.items() if name != DECODER)

    @property
    def architecture(self) -> _Architecture:
        """The most complete class that the weights support: old config.json files name none, or a lesser one."""
        declared = self.settings.get("architectures") or ()
        if self.has("classifier.weight") and "BertForSequenceClassification" in declared:
            return "BertForSequenceClassification"
        if not self.has(MLM_HEAD):
            return "BertModel"
        return "BertForPreTraining" if self.has("cls.seq_relationship.weight") else "BertForMaskedLM"

    @property
    def has_mlm_head(self) -> bool:
        """Whether it fills blanks; encoders saved alone do not."""
        return self.architecture in ("BertForMaskedLM", "BertForPreTraining")

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels of a classifier of texts or tokens, in the order of their ids.

        They are `LABEL_0`, `LABEL_1`, ... where config.json names none: transformers omits two labels of these names.

        Raises:
            ArtifactError: It is not a classifier, or has fewer outputs than named labels.
        """
        head = self.shapes.get("classifier.weight")
        if head is None:
            architectures = ", ".join(self.settings.get("architectures") or []) or "nothing"
            raise ArtifactError(
                f"{self.folder} is not a fine-tuned classifier (its config.json says {architectures}). "
                "Choose a folder that the sweep or the export of a task wrote."
            )
        names, ids = self.settings.get("id2label") or {}, [str(index) for index in range(head[0])]
        if unknown := names.keys() - ids:
            raise ArtifactError(
                f"{self.folder / CONFIG_NAME}: id2label names {min(unknown)!r}, but the classifier has the outputs 0 "
                f"to {head[0] - 1}. Copy the folder again, or correct id2label."
            )
        return tuple(str(names.get(index, f"LABEL_{index}")) for index in ids)

    def shards(self, framework: Literal["np", "pt"]) -> Iterator[tuple[Path, safe_open]]:
        """Yield each file of weights, opened for NumPy or PyTorch.

        Raises:
            ArtifactError: The folder has no safetensors file, or one is missing or truncated.
        """
        for path in _files(self.folder):
            try:
                with safe_open(path, framework=framework) as shard:
                    yield path, shard
            except FileNotFoundError as error:
                raise ArtifactError(
                    f"{path} is missing, though {_INDEX_NAME} names it. Copy the whole folder again."
                ) from error
            except SafetensorError as error:
                refuse_lfs_pointer(path)
                raise ArtifactError(
                    f"{path} is not a whole safetensors file ({error}). Copy or write it again."
                ) from error


def _read_config(folder: Path) -> dict[str, Any]:
    """Read config.json as it is, and refuse adapters, quantized weights and values of another type."""
    path, adapter = folder / CONFIG_NAME, folder / "adapter_config.json"
    if adapter.is_file():
        raise ArtifactError(
            f"{folder} has an adapter ({adapter.name}), which changes what base weights compute. Merge it into them by "
            "the class of peft for its task, copy the tokenizer's files, and take the new folder: python -c 'import "
            f'peft; peft.AutoPeftModelForSequenceClassification.from_pretrained("{folder}").merge_and_unload()'
            f""".save_pretrained("{folder}-merged")'"""
        )
    if not path.is_file():
        raise ArtifactError(f"{path} is missing; {folder} is not a model folder. Give one with config.json.")
    mapping = read_object(path)
    if mapping.get("quantization_config"):
        raise ArtifactError(f"{path} has a quantization_config. Load the full-precision checkpoint instead.")
    for key, expected in _TYPES.items():
        value = mapping.get(key)
        if value is not None and type(value) is not expected:
            raise ArtifactError(f"{path}: {key} is {value!r:.200}, expected a {expected.__name__}. Copy it again.")
    if not all(isinstance(name, str) for name in mapping.get("architectures") or []):
        raise ArtifactError(f"{path}: architectures is {mapping['architectures']!r:.200}, expected names of classes.")
    return mapping


def model_config_in(settings: Mapping[str, Any], family: Family, where: str) -> ModelConfig:
    """Return the architecture that a config.json with BERT's keys describes.

    Optional keys that are missing, as in old checkpoints, get the values of the reference code.

    Raises:
        ArtifactError: A setting is not computed here, is missing, or has an impossible value.
    """
    only = {"is_decoder": False, **({} if family.wrapping else {"position_embedding_type": "absolute"})}
    for key, expected in only.items():
        value = settings.get(key, expected)
        if value != expected:
            raise ArtifactError(
                f"{where}: {key} is {value!r}; bertline reads {expected!r} only. Choose a BERT encoder."
            )
    activation = settings.get("hidden_act", "gelu")
    if str(activation) not in _ACTIVATIONS and (family.wrapping is None or type(activation) is not str):
        raise ArtifactError(f"{where}: hidden_act is {activation!r}; bertline has {', '.join(sorted(_ACTIVATIONS))}.")
    missing = [key for key in _REQUIRED if key not in settings]
    if missing:
        raise ArtifactError(f"{where}: {', '.join(missing)} missing; is this the configuration of a BERT model?")
    numbers = {key: settings[key] for key in _REQUIRED} | {key: settings.get(key, _OPTIONAL[key]) for key in _OPTIONAL}
    for key, value in numbers.items():
        may_be_float = isinstance(_OPTIONAL.get(key), float)
        if type(value) is not int and not (may_be_float and type(value) is float):
            raise ArtifactError(f"{where}: {key} is {value!r:.200}, expected a number. Correct it, or copy it again.")
    vocab_size, pad_token_id = numbers.pop("vocab_size"), settings.get("pad_token_id") or 0
    if not 0 <= pad_token_id < vocab_size <= LARGEST_SIZE:
        found = f"vocab_size is {vocab_size}, pad_token_id {pad_token_id}"
        raise ArtifactError(f"{where}: {found}; expected an id of a vocabulary of at most {LARGEST_SIZE:,} tokens.")
    try:
        config = ModelConfig(**numbers, hidden_act=_ACTIVATIONS.get(activation, activation), family=family.model_type)
    except ValueError as error:
        raise ArtifactError(f"{where}: {error}.") from error
    layers, groups = config.num_hidden_layers, settings.get("num_hidden_groups") or 1
    if layers % groups:
        raise ArtifactError(
            f"{where}: num_hidden_layers is {layers}, not a multiple of num_hidden_groups ({groups}), so that some "
            "groups of shared weights would have more layers than others. Change one of them."
        )
    for key in ("classifier_dropout", "qa_dropout"):
        if (rate := settings.get(key)) is not None and (type(rate) not in (int, float) or not 0 <= rate < 1):
            raise ArtifactError(f"{where}: {key} is {rate!r:.200}, expected a number in [0, 1) or null.")
    return config


def _files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS_NAME).is_file():
        return [folder / WEIGHTS_NAME]
    if (folder / _INDEX_NAME).is_file():
        places = read_object(folder / _INDEX_NAME).get("weight_map")
        names: list[Any] = list(places.values()) if isinstance(places, dict) else [places]
        if bad := [name for name in names if not re.fullmatch(r"[^/\\]+\.safetensors", str(name))]:
            raise ArtifactError(
                f"{folder / _INDEX_NAME}: weight_map names {bad[0]!r:.200}, no file of this folder. Copy it again."
            )
        return [folder / name for name in sorted(set(names))]
    for name in _PICKLE_NAMES:
        if (folder / name).is_file():
            raise ArtifactError(
                f"{folder} has its weights in {name} only, a pickle, which can run any code when it is loaded. "
                f"Take a revision of the model with {WEIGHTS_NAME}, or convert it once, on a machine where you trust "
                f"it, and take the new folder: {conversion_of(folder)}"
            )
    file_names = ", ".join(sorted(path.name for path in folder.iterdir()))
    raise ArtifactError(f"{folder} has no {WEIGHTS_NAME} (found: {file_names}). Is this a model folder?")


def normalised_name(key: str) -> str | None:
    """Return the current Hugging Face name, with the `bert.` prefix, for a weight name of any BERT checkpoint.

    LayerNorm's old `gamma` and `beta` are renamed, and names of a bare encoder get the prefix. None for entries that
    are not separate weights: position and token type ids stored by some versions, and the decoder bias's second name.

    >>> normalised_name("embeddings.LayerNorm.gamma")
    'bert.embeddings.LayerNorm.weight'
    """
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if key.endswith(old):
            key = key.removesuffix(old) + new
    if key.startswith(("embeddings.", "encoder.", "pooler.")):
        key = f"bert.{key}"
    if key.endswith((".position_ids", "embeddings.token_type_ids")) or key == "cls.predictions.decoder.bias":
        return None
    return key
