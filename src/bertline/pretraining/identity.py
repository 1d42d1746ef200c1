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

# Keys that change no weights of the last step, which is the result. Probes look without dropout or gradients and draw
# from no generator that training draws from; checkpoints are copies. Two things beside the weights do depend on them:
# which step counts as the best (losses over other sequences are another measure: see `same_measure`), and, where a
# training fails, when it goes back (health) and how far (checkpoints). These say how to go on from here, so a run that
# diverged is gone on with once it may go back more often; health.jsonl and the checkpoint keep what it passed over.
FREE_KEYS = (
    "pretrain.validate_every_steps",
    "pretrain.validation_sequences",
    "pretrain.checkpoint_every_steps",
    "pretrain.keep_checkpoints",
    "pretrain.film_strip",
    "pretrain.linear_probe",
    "pretrain.health",
)
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
    """Refuse to go on from a training that is not this one; what changes no weights may differ.

    Args:
        found: The identity in the checkpoint.
        expected: The identity of the job.
        where: The run that the checkpoint belongs to, for the message.
        extending: Whether the number of steps may differ.

    Raises:
        ConfigError: Naming every key that differs, with both values.
    """
    allowed = (*FREE_KEYS, *_EXTENDABLE) if extending else FREE_KEYS
    differences = [line for key, line in _differences(found, expected) if not _is_within(key, allowed)]
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


def changes_no_weights(key: str) -> bool:
    """Whether a run may be gone on with under another value of this dotted key.

    Example:
        >>> changes_no_weights("pretrain.health.max_rewinds"), changes_no_weights("pretrain.seed")
        (True, False)
    """
    return _is_within(key, FREE_KEYS)


def same_measure(found: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Whether the held-out losses of two identities compare: both are over the same sequences."""
    return found["pretrain"]["validation_sequences"] == expected["pretrain"]["validation_sequences"]


def _is_within(key: str, parents: tuple[str, ...]) -> bool:
    return any(key == parent or key.startswith(f"{parent}.") for parent in parents)


def _differences(found: Any, expected: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        for name in sorted({*found, *expected}):
            yield from _differences(found.get(name), expected.get(name), f"{key}.{name}" if key else name)
    elif found != expected:
        yield key, f"{key} was {found!r}, is now {expected!r}"
