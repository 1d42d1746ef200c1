"""Reading and writing the weights of a model folder: safetensors only, never pickle; and their names there.

Files always have Hugging Face's names, also for fused weights: query, key and value are one matrix in memory and three
on disk.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from bertline.foundation.errors import ArtifactError, MachineError
from bertline.foundation.files import cannot_write, read_object, refuse_lfs_pointer
from bertline.modeling.families import family_of
from bertline.tokenization.vocabulary import conversion_of

WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
_PICKLE_NAMES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_DTYPES = ("F32", "F16", "BF16", "F64")
WRAPPER = r"^(?:module\.|_orig_mod\.)+"
"""What `DataParallel` and `torch.compile`, one perhaps in the other, put before the names of all weights."""
_DECODER = "cls.predictions.decoder.weight"
_WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
POSITIONS = "bert.embeddings.position_embeddings.weight"
UNUSED_POSITIONS = "bert.embeddings.unused_positions"
"""Name of the rows of the position embeddings before that of position 0, which only some families have."""
_LAYER_NAMES = {
    "attention_output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
}
_OTHER_NAMES = {
    "bert.embeddings.norm": "bert.embeddings.LayerNorm",
    "bert.pooler": "bert.pooler.dense",
    "mlm_head.transform": "cls.predictions.transform.dense",
    "mlm_head.norm": "cls.predictions.transform.LayerNorm",
    "mlm_head": "cls.predictions",
    "nsp_head": "cls.seq_relationship",
}
_FUSED = "query_key_value"
_FUSED_PARTS = ("attention.self.query", "attention.self.key", "attention.self.value")


def write_weights(weights: Mapping[str, Tensor], target: Path) -> None:
    """Write a safetensors file atomically, in fp32.

    Raises:
        MachineError: The folder is full or cannot be written.
    """
    contiguous = {name: tensor.detach().float().cpu().contiguous() for name, tensor in weights.items()}
    temporary = target.with_name(f".{target.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        mode = temporary.stat().st_mode & 0o777
        # transformers checks the `format` entry.
        save_file(contiguous, temporary, metadata={"format": "pt"})
        temporary.chmod(mode)  # safetensors creates files that only the owner can read
        temporary.replace(target)
    except (OSError, SafetensorError) as error:
        if target.parent.is_dir():
            temporary.unlink(missing_ok=True)
        reason = error if isinstance(error, OSError) else OSError(str(error))
        raise MachineError(cannot_write(target, reason)) from error


def read_weights(folder: Path, *, with_output: bool) -> dict[str, Tensor]:
    """Read all weights of a folder, sharded or not, under current Hugging Face names (`normalised_name`).

    Args:
        with_output: Whether the model has a masked language model head, whose decoder is tied to the word embeddings.

    Raises:
        ArtifactError: The folder has no safetensors file, a file is truncated, weights are not finite, or
            (`with_output`) the decoder weights differ from the word embeddings.
    """
    weights: dict[str, Tensor] = {}
    names, unused = _names_in(folder), family_of(folder)[1]
    for path, shard in _shards(folder):
        read = {key: shard.get_tensor(key) for key in shard.keys() if key in names}  # noqa: SIM118
        require_finite(read, path)
        weights.update((names[key], tensor) for key, tensor in read.items())
    if unused:
        weights[UNUSED_POSITIONS], weights[POSITIONS] = weights[POSITIONS].tensor_split([unused])
    decoder = weights.pop(_DECODER, None)
    words = weights.get(_WORD_EMBEDDINGS)
    if with_output and decoder is not None and words is not None and not torch.equal(decoder, words):
        raise ArtifactError(
            f"{folder}: {_DECODER} differs from the word embeddings. bertline ties the two, as BERT does, so it cannot "
            "continue this checkpoint's pretraining or predict masked tokens with it. Its encoder can be fine-tuned."
        )
    return weights


def read_weight_names(folder: Path) -> set[str]:
    """Return the current Hugging Face names of a folder's weights, without reading the weights.

    Raises:
        ArtifactError: The folder has no safetensors file, or a file is missing or truncated.
    """
    return set(_names_in(folder).values())


def read_weight_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a folder's weights by current Hugging Face name, without reading the weights.

    Raises:
        ArtifactError: The folder has no safetensors file, or a file is missing or truncated.
    """
    names, unused = _names_in(folder), family_of(folder)[1]
    shapes = {
        names[key]: tuple(shard.get_slice(key).get_shape())
        for _, shard in _shards(folder)
        for key in shard.keys()  # noqa: SIM118
        if key in names
    }
    if POSITIONS in shapes:
        shapes[POSITIONS] = (shapes[POSITIONS][0] - unused, *shapes[POSITIONS][1:])
    return shapes


def _names_in(folder: Path) -> dict[str, str]:
    """Return the current BERT name of each weight of a folder of any family, by its name there."""
    family = family_of(folder)[0]
    dtypes = {key: shard.get_slice(key).get_dtype() for _, shard in _shards(folder) for key in shard.keys()}  # noqa: SIM118
    keys = _without_wrappers(dtypes, folder)
    heads = {theirs for _, theirs in family.sequence_head}
    is_classifier = any(key.startswith(tuple(heads)) for key in keys.values()) if heads else False
    names = {}
    for on_disk, key in keys.items():
        in_bert = family.to_bert(key, is_classifier=is_classifier)
        if in_bert is not None and (name := normalised_name(in_bert)) is not None:
            names[on_disk] = name
            if dtypes[on_disk] not in _DTYPES:
                raise ArtifactError(
                    f"{folder}: {on_disk} has the dtype {dtypes[on_disk]}; bertline reads {', '.join(_DTYPES)}. Its "
                    "weights are quantized: load the full-precision checkpoint instead."
                )
    return names


def _without_wrappers(keys: Iterable[str], folder: Path) -> dict[str, str]:
    """Return names without the prefixes of `DataParallel` and `torch.compile`, by the names in the files."""
    names = {key: re.sub(WRAPPER, "", key) for key in keys}
    examples = {key.removesuffix(name): key for key, name in names.items()}
    if len(examples) > 1:
        raise ArtifactError(
            f"{folder} has {len(examples)} sets of weights, whose names begin otherwise: "
            f"{' and '.join(examples.values())} are examples. Save the model inside the wrapper alone."
        )
    return names


def require_finite(weights: Mapping[str, Tensor], path: Path) -> None:
    """Reject weights with NaN or infinite values: every output computed with them would be NaN.

    Raises:
        ArtifactError: A value is not finite; the message names the file and the first tensor with such values.
    """
    infinite = [name for name, tensor in weights.items() if not is_finite(tensor)]
    if infinite:
        bad = int((~torch.isfinite(weights[infinite[0]])).sum())
        others = f", and {len(infinite) - 1} more tensors have such values" if len(infinite) > 1 else ""
        raise ArtifactError(
            f"{path}: {infinite[0]} has {bad:,} of {weights[infinite[0]].numel():,} values that are not finite (NaN or "
            f"infinite){others}. The file was damaged or its training diverged. Copy it again, or use an earlier model."
        )


def is_finite(tensor: Tensor) -> bool:
    """Return whether every value is finite; integers always are."""
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def count_parameters(folder: Path) -> int:
    """Return the number of parameters in a folder, without reading the weights."""
    return sum(math.prod(shape) for name, shape in read_weight_shapes(folder).items() if name != _DECODER)


def _shards(folder: Path) -> Iterator[tuple[Path, safe_open]]:
    """Yield each file of weights of a folder, opened.

    Raises:
        ArtifactError: The folder has no safetensors file, or a file is missing or truncated.
    """
    for path in _files(folder):
        try:
            with safe_open(path, framework="pt") as shard:
                yield path, shard
        except FileNotFoundError as error:
            raise ArtifactError(
                f"{path} is missing, though {INDEX_NAME} names it. Copy the whole folder again."
            ) from error
        except SafetensorError as error:
            refuse_lfs_pointer(path)
            raise ArtifactError(f"{path} is not a whole safetensors file ({error}). Copy or write it again.") from error


def _files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS_NAME).is_file():
        return [folder / WEIGHTS_NAME]
    if (folder / INDEX_NAME).is_file():
        places = read_object(folder / INDEX_NAME).get("weight_map")
        names: list[Any] = list(places.values()) if isinstance(places, dict) else [places]
        if bad := [name for name in names if not re.fullmatch(r"[^/\\]+\.safetensors", str(name))]:
            raise ArtifactError(
                f"{folder / INDEX_NAME}: weight_map names {bad[0]!r:.200}, no file of this folder. Copy it again."
            )
        return [folder / name for name in sorted(set(names))]
    for name in _PICKLE_NAMES:
        if (folder / name).is_file():
            raise ArtifactError(
                f"{folder} has its weights in {name} only, a pickle, which can run any code when it is loaded. "
                f"Take a revision of the model with {WEIGHTS_NAME}, or convert it once, on a machine where you trust "
                f"it, and take the new folder: {conversion_of(folder)}"
            )
    file_names = ", ".join(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else "no such folder"
    raise ArtifactError(f"{folder} has no {WEIGHTS_NAME} (found: {file_names}). Is this a model folder?")


def digest_of_weights(model: nn.Module) -> str:
    """Return a hexadecimal digest of the names, dtypes, shapes and bytes of all weights."""
    digest = hashlib.blake2b(digest_size=16)
    for name, weights in model.state_dict().items():
        digest.update(f"{name} {weights.dtype} {tuple(weights.shape)}".encode())
        digest.update(weights.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def names_on_disk(name: str) -> tuple[str, ...]:
    """Return the Hugging Face name of a bertline weight, or the three names of a fused one, in order.

    >>> names_on_disk("bert.layers.3.output_norm.weight")
    ('bert.encoder.layer.3.output.LayerNorm.weight',)
    >>> names_on_disk("bert.layers.0.query_key_value.bias")[1]
    'bert.encoder.layer.0.attention.self.key.bias'
    """
    module, _, kind = name.rpartition(".")
    if module.startswith("bert.layers."):
        number, part = module.removeprefix("bert.layers.").split(".")
        parts = _FUSED_PARTS if part == _FUSED else (_LAYER_NAMES[part],)
        return tuple(f"bert.encoder.layer.{number}.{part}.{kind}" for part in parts)
    return (f"{_OTHER_NAMES.get(module, module)}.{kind}",)


def to_disk(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights under Hugging Face's names; fused weights are split into three parts (views, not copies)."""
    result: dict[str, Tensor] = {}
    for name, tensor in state.items():
        names = names_on_disk(name)
        result.update(zip(names, tensor.chunk(len(names)), strict=True))
    return result


def from_disk(ours: Mapping[str, Tensor], disk: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Return weights with `normalised_name` names under bertline's; of `ours`, only the names are used.

    Returns:
        The weights found, in fp32, and the Hugging Face names of the missing ones.
    """
    found, missing = {}, []
    for name in ours:
        names = names_on_disk(name)
        absent = [key for key in names if key not in disk]
        if absent:
            missing += absent
        else:
            found[name] = torch.cat([disk[key] for key in names]).float()
    return found, missing


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
