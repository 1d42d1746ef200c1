"""Moving an alias by hand: to which version, and why. Imports MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from bertline.foundation.errors import ConfigError
from bertline.tracking.addresses import masked
from bertline.tracking.config import TrackingConfig
from bertline.tracking.store import Store

REASON_TAG, BEFORE_TAG, TIME_TAG = "bertline.promoted.reason", "bertline.promoted.before", "bertline.promoted.at"
_SCORES = ("metric", "dev_score", "dev_std", "test_score", "test_std")


@dataclass(frozen=True, kw_only=True, slots=True)
class Promotion:
    """An alias that was moved."""

    name: str
    alias: str
    before: str | None
    """The version that had it; None where none had."""
    after: str
    scores_before: str
    """For people; empty where nothing is known."""
    scores_after: str


def promote(config: TrackingConfig, name: str, *, version: str, alias: str, reason: str) -> Promotion:
    """Point the alias at a version, and store the reason, the version before and the time as tags of the version.

    Args:
        config: The store.
        name: Name of the registered model.
        version: Its number.
        alias: `champion`.
        reason: For whoever asks later.

    Raises:
        ConfigError: Tracking is off, the reason is empty, or there is no such model or version. Nothing was changed.
    """
    if not reason.strip():
        raise ConfigError('reason is empty; say why this version is taken, for whoever asks later: reason="..."')
    if not config.enabled:
        raise ConfigError("tracking.enabled is false, so there is no registry. Run with tracking.enabled=true.")
    client = Store(config.uri, config.experiment_name).client
    versions = _versions(client, name, masked(config.uri))
    if version not in versions:
        there = ", ".join(sorted(versions, key=_number))
        raise ConfigError(f"{name} has no version {version!r}; it has {there}. Nothing was changed.")
    before = client.get_registered_model(name).aliases.get(alias)
    before = None if before is None else str(before)
    tags = {REASON_TAG: reason.strip(), BEFORE_TAG: before or "none", TIME_TAG: f"{datetime.now(UTC):%Y-%m-%d %H:%M}Z"}
    for tag, value in tags.items():
        client.set_model_version_tag(name, version, tag, value)
    client.set_registered_model_alias(name, alias, version)
    return Promotion(
        name=name,
        alias=alias,
        before=before,
        after=version,
        scores_before="" if before is None else _scores(versions.get(before, {})),
        scores_after=_scores(versions[version]),
    )


def _versions(client: MlflowClient, name: str, uri: str) -> dict[str, Mapping[str, str]]:
    """The tags of each version.

    Raises:
        ConfigError: There is no such model.
    """
    quoted = name.replace("'", "''")
    try:
        found = client.search_model_versions(f"name = '{quoted}'")
    except MlflowException as error:
        raise ConfigError(f"{name} cannot be looked up in {uri}: {masked(str(error))}") from error
    if not found:
        raise ConfigError(
            f"{uri} has no registered model {name!r}. Run the stage export first, or check task_name and "
            "export.model_name."
        )
    return {str(version.version): dict(version.tags) for version in found}


def _scores(tags: Mapping[str, str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_shown(tags[name])}" for name in _SCORES if name in tags)


def _shown(value: str) -> str:
    try:
        return f"{float(value):.4f}"
    except ValueError:
        return value


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0
