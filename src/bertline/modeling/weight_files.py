"""Reading and writing the weights of a model folder: safetensors only, never pickle; and their names there.

Files always have Hugging Face's names, also for fused weights: query, key and value are one matrix in memory and three
on disk.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import file_written_atomically
from bertline.modeling.checkpoint import DECODER, POSITIONS, Checkpoint

_WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
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
    with file_written_atomically(target) as temporary:
        mode = temporary.stat().st_mode
        try:  # into the file: as bytes, the weights would be in memory twice more
            # transformers checks the `format` entry.
            save_file(contiguous, temporary, metadata={"format": "pt"})
        except SafetensorError as error:
            raise OSError(str(error)) from error
        temporary.chmod(mode)  # safetensors makes files that only the owner can read


def read_weights(source: Checkpoint | Path, *, with_output: bool) -> dict[str, Tensor]:
    """Read all weights, by the names of `Checkpoint.names`.

    Args:
        with_output: Whether the model has a masked language model head, whose decoder is tied to the word embeddings.

    Raises:
        ArtifactError: The folder has no safetensors file, a file is truncated, weights are not finite, or
            (`with_output`) the decoder weights differ from the word embeddings.
    """
    weights: dict[str, Tensor] = {}
    checkpoint = Checkpoint.open(source)
    names = checkpoint.names
    for path, shard in checkpoint.shards("pt"):
        read = {key: shard.get_tensor(key) for key in shard.keys() if key in names}  # noqa: SIM118
        require_finite(read, path)
        weights.update((names[key], tensor) for key, tensor in read.items())
    if unused := checkpoint.num_unused_positions:
        weights[UNUSED_POSITIONS], weights[POSITIONS] = weights[POSITIONS].tensor_split([unused])
    decoder = weights.pop(DECODER, None)
    words = weights.get(_WORD_EMBEDDINGS)
    if with_output and decoder is not None and words is not None and not torch.equal(decoder, words):
        raise ArtifactError(
            f"{checkpoint.folder}: {DECODER} differs from the word embeddings. bertline ties the two, as BERT does, so "
            "it cannot continue this checkpoint's pretraining or predict masked tokens with it. Its encoder can be "
            "fine-tuned."
        )
    return weights


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file that is no model of its own.

    Raises:
        ArtifactError: It is missing or truncated, or has values that are not finite.
    """
    try:
        tensors = load_file(path)
    except (FileNotFoundError, SafetensorError) as error:
        raise ArtifactError(
            f"{path} is missing or not a whole safetensors file ({error}). Copy the whole folder again, or save it "
            "with safetensors."
        ) from error
    require_finite(tensors, path)
    return tensors


def require_finite(weights: Mapping[str, Tensor], path: Path) -> None:
    """Reject weights with NaN or infinite values: every output computed with them would be NaN.

    Raises:
        ArtifactError: A value is not finite; the message names the file and the first tensor with such values.
    """
    for name, tensor in weights.items():
        if not is_finite(tensor):
            raise ArtifactError(
                f"{path}: {name} has values that are not finite (NaN or infinite). The file was damaged or its "
                "training diverged. Copy it again, or use an earlier model."
            )


def is_finite(tensor: Tensor) -> bool:
    """Return whether every value is finite; integers always are."""
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


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
