"""What makes two runs the same training: stored in every checkpoint, compared before one goes on from another."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from bertline.foundation.errors import ConfigError
from bertline.foundation.files import sha256_of_file
from bertline.foundation.manifests import MANIFEST_NAME
from bertline.pretraining.job import PretrainJob
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Precision

# Alarms change no weights; and a run that diverged is gone on with once it may go back more often.
_FREE = ("pretrain.health",)
# What a run may change when it extends another.
_EXTENDABLE = ("pretrain.phases", "pretrain.max_steps", "pretrain.extends")


def identity_of(job: PretrainJob, precision: Precision) -> dict[str, Any]:
    """Everything that the weights depend on, as plain data: configuration, inputs and the resolved precision."""
    pieces = "\n".join(Tokenizer.load(job.tokenizer_folder).pieces)
    sections = ("model", "objective", "optimizer", "schedule", "pretrain")
    identity = {
        **{name: dataclasses.asdict(getattr(job, name)) for name in sections},
        "examples": {"manifest": sha256_of_file(job.examples_folder / MANIFEST_NAME)},
        "tokenizer": {"pieces": hashlib.sha256(pieces.encode()).hexdigest()},
        "resolved": {"precision": precision},
    }
    return json.loads(json.dumps(identity))


def require_same(found: Mapping[str, Any], expected: Mapping[str, Any], *, where: str, extending: bool) -> None:
    """Refuse to go on from a training that is not this one; `pretrain.health` may differ.

    Args:
        found: The identity in the checkpoint.
        expected: The identity of the job.
        where: The run that the checkpoint belongs to, for the message.
        extending: Whether the number of steps may differ.

    Raises:
        ConfigError: Naming every key that differs, with both values.
    """
    allowed = (*_FREE, *_EXTENDABLE) if extending else _FREE
    differences = [line for key, line in _differences(found, expected) if not key.startswith(allowed)]
    if differences:
        rule = (
            "A run can be extended by more steps only, all else must be as it was"
            if extending
            else "A run is resumed only as it was begun; give another run folder to begin anew"
        )
        raise ConfigError(
            f"{where} was trained with another configuration:\n"
            + "\n".join(f"  - {line}" for line in differences)
            + f"\n{rule}."
        )


def _differences(found: Any, expected: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        for name in sorted({*found, *expected}):
            yield from _differences(found.get(name), expected.get(name), f"{key}.{name}" if key else name)
    elif found != expected:
        yield key, f"{key} was {found!r}, is now {expected!r}"
