"""Conversion of plain data to the format and size limits of MLflow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

NOTE_TAG = "mlflow.note.content"
"""Tag with the text, in Markdown, that MLflow shows on the page of a run, an experiment or a model."""

# MLflow's limits (mlflow.utils.validation): some stores reject longer values, others truncate them silently.
_MAX_KEY_CHARACTERS = 250
MAX_PARAM_CHARACTERS = 6000
MAX_TAG_CHARACTERS = 8000
PARAMS_PER_BATCH = 100
METRICS_PER_BATCH = 1000

# Configuration keys whose values are the user's sentences, not settings.
_TEXT_KEYS = ("mask_predictions.sentences",)


def without_text(mapping: Mapping[str, Any], key: str = "") -> dict[str, Any]:
    """Return a nested configuration without the values that are the user's sentences (see `tracking.log_text`).

    Example:
        >>> without_text({"mask_predictions": {"sentences": ["Mine, [MASK]."], "every_steps": 500}})
        {'mask_predictions': {'every_steps': 500}}
    """
    kept = {name: value for name, value in mapping.items() if not f"{key}.{name}".endswith(_TEXT_KEYS)}
    return {name: without_text(value, name) if isinstance(value, Mapping) else value for name, value in kept.items()}


def flatten(mapping: Mapping[str, Any]) -> dict[str, str]:
    """Flatten a nested configuration to dotted keys and string values, the format of MLflow's parameters.

    Lists of plain values are kept whole; lists of mappings are indexed.

    Example:
        >>> flatten({"optimizer": {"lr": 0.001, "betas": [0.9, 0.999]}, "phases": [{"steps": 10}]})
        {'optimizer.lr': '0.001', 'optimizer.betas': '[0.9, 0.999]', 'phases.0.steps': '10'}
    """
    return {key[:_MAX_KEY_CHARACTERS]: cut(_text(value), MAX_PARAM_CHARACTERS) for key, value in _leaves(mapping, "")}


def cut(value: str, limit: int) -> str:
    """Truncate a value to a limit, with a note on its original length.

    Example:
        >>> cut("a" * 100, 40)
        'aaaaaaaaaaaaaaa… (cut, 100 characters)'
    """
    if len(value) <= limit:
        return value
    note = f"… (cut, {len(value)} characters)"
    # MLflow counts characters, databases may count bytes: leave two bytes for the note's multi-byte character.
    return value[: limit - len(note) - 2] + note


def metric_key(name: str) -> str:
    """Replace @ in the name of a metric, which MLflow does not allow in keys.

    Example:
        >>> metric_key("test/ndcg@10_mean")
        'test/ndcg_at_10_mean'
    """
    return name.replace("@", "_at_")


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield consecutive slices of at most `size` items."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and (value or not key):
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{key}.{index}" if key else str(index))
    else:
        yield key, value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
