"""Mapping between bertline's weight names (in memory) and Hugging Face's (on disk).

Files always have Hugging Face's names, also for fused weights: query, key and value are one matrix in memory and three
on disk.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

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
    """Return Hugging Face weights under bertline's names.

    Args:
        ours: Weights of the model to load into; only their names are used.
        disk: Weights with names normalised by `normalised_name`.

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
