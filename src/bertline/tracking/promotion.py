"""Moving an alias to a version by hand, with a recorded reason. Imports MLflow."""

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
    """Record of a moved alias."""

    name: str
    alias: str
    before: str | None
    """Version that had the alias; None if there was none."""
    after: str
    """Version that has the alias now."""
    scores_before: str
    """Scores of the previous version, for display; empty if unknown."""
    scores_after: str


def promote(config: TrackingConfig, name: str, *, version: str, alias: str, reason: str) -> Promotion:
    """Point the alias at a version, and store the reason, the previous version and the time as tags of the version.

    Args:
        config: Configuration of the store.
        name: Name of the registered model.
        version: Version number.
        alias: Alias to move, such as `champion`.
        reason: Reason for the promotion, for later readers.

    Raises:
        ConfigError: Tracking is disabled, the reason is empty, or the model or version does not exist. Nothing is
            changed.
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
    """Return the tags of each version.

    Raises:
        ConfigError: The model does not exist or cannot be looked up.
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
