"""Identity of a training run: stored in every checkpoint and compared before training resumes from it."""

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

# Keys that do not affect the weights of the last step, which are the result. Probes run without dropout and gradients
# and do not use training's random generators; checkpoints are copies. Two things do depend on these keys: which step
# counts as the best (losses over different sequences are not comparable: see `same_measure`), and, if training fails,
# when it rolls back (health) and how far (checkpoints). The new values apply from the resumed step on, so a diverged
# run can be resumed with more rollbacks allowed; health.jsonl and the checkpoint record the examples that it skipped.
FREE_KEYS = (
    "pretrain.validate_every_steps",
    "pretrain.validation_sequences",
    "pretrain.checkpoint_every_steps",
    "pretrain.keep_checkpoints",
    "pretrain.mask_predictions",
    "pretrain.linear_probe",
    "pretrain.health",
)
# Keys that may change when a run extends another.
_EXTENDABLE = ("pretrain.phases", "pretrain.max_steps", "pretrain.extends")


def identity_of(job: PretrainJob, precision: Precision) -> dict[str, Any]:
    """Return everything that the weights depend on as plain data: configuration, inputs and resolved precision."""
    tokens = "\n".join(Tokenizer.load(job.tokenizer_folder).vocab)
    sections = ("model", "objective", "optimizer", "schedule", "pretrain")
    identity = {
        **{name: dataclasses.asdict(getattr(job, name)) for name in sections},
        "examples": {"manifest": sha256_of_file(job.examples_folder / MANIFEST_NAME)},
        "tokenizer": {"tokens": hashlib.sha256(tokens.encode()).hexdigest()},
        "resolved": {"precision": precision},
    }
    return json.loads(json.dumps(identity))


def require_same(found: Mapping[str, Any], expected: Mapping[str, Any], *, where: str, extending: bool) -> None:
    """Refuse to resume from a checkpoint of a different training; keys that do not affect the weights may differ.

    Args:
        found: Identity stored in the checkpoint.
        expected: Identity of the job.
        where: Run that the checkpoint belongs to, for the error message.
        extending: Whether the job extends the run, so that phases and number of steps may differ.

    Raises:
        ConfigError: Other keys differ; the message lists each of them with both values.
    """
    allowed = (*FREE_KEYS, *_EXTENDABLE) if extending else FREE_KEYS
    differences = [line for key, line in _differences(found, expected) if not _is_within(key, allowed)]
    if differences:
        rule = (
            "A run can be extended by more steps only, all else must be as it was"
            if extending
            else "A run is resumed only as it was started; give another run folder to start from scratch"
        )
        raise ConfigError(
            f"{where} was trained with another configuration:\n"
            + "\n".join(f"  - {line}" for line in differences)
            + f"\n{rule}."
        )


def changes_no_weights(key: str) -> bool:
    """Return whether a run can be resumed with a different value of this dotted key.

    Example:
        >>> changes_no_weights("pretrain.health.max_rewinds"), changes_no_weights("pretrain.seed")
        (True, False)
    """
    return _is_within(key, FREE_KEYS)


def same_measure(found: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Return whether the held-out losses of two identities are comparable, that is, over the same sequences."""
    return found["pretrain"]["validation_sequences"] == expected["pretrain"]["validation_sequences"]


def _is_within(key: str, parents: tuple[str, ...]) -> bool:
    return any(key == parent or key.startswith(f"{parent}.") for parent in parents)


def _differences(found: Any, expected: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        for name in sorted({*found, *expected}):
            yield from _differences(found.get(name), expected.get(name), f"{key}.{name}" if key else name)
    elif found != expected:
        yield key, f"{key} was {found!r}, is now {expected!r}"
