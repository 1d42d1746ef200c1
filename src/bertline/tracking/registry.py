"""Model registry: registers a folder of plain files as a version with an alias."""

import hashlib
import json
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

from bertline.foundation.errors import ConfigError
from bertline.foundation.files import read_json, sha256_of_path
from bertline.foundation.progress import say, warn
from bertline.tracking.config import TrackingConfig, masked
from bertline.tracking.mlmodel import FORMAT, write_mlmodel
from bertline.tracking.registration import Decision, Registration, Standing, challenged
from bertline.tracking.store import Store, dataset_inputs, metric_key
from bertline.tracking.tracked_runs import NOTE_TAG

_CONTENT_TAG, _FORMAT_TAG, _STANDING_TAG = "bertline.content", "bertline.format", "bertline.standing"
_VERSIONS_TAG = "mlflow.modelVersions"
# The card contains measured latencies, which differ between runs.
_CARD = "README.md"
# Width of MLflow's columns for descriptions and for a model's tags.
_MAX_DESCRIPTION = 5000


def register_folder(store: Store, run_id: str, name: str, folder: Path, registration: Registration) -> str:
    """Log the folder as a model of the run, register it, point the alias at it, and return the version.

    Content that is already registered, ignoring the card, is not uploaded again. The version is the folder itself
    (config, safetensors, tokenizer, model card) with an `MLmodel`, so `mlflow.pyfunc.load_model("models:/NAME@ALIAS")`
    loads it, and what `mlflow.artifacts.download_artifacts` returns is a folder that `transformers` and `bertline.load`
    can open. Nothing is pickled. The card is the description.
    """
    client, standing = store.client, registration.standing
    content = _content_of(folder)
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    known = client.search_model_versions(f"name = '{name}'")
    own_tags = {_CONTENT_TAG: content, _FORMAT_TAG: FORMAT}
    same = [version for version in known if own_tags.items() <= version.tags.items()]
    tags = {**registration.tags, **own_tags}
    version = str((same[0] if same else _new_version(store, run_id, name, folder, tags, registration)).version)
    description = _description_of(folder)
    client.update_model_version(name, version, description)
    client.update_registered_model(name, description)
    client.set_registered_model_alias(name, registration.alias, version)
    if standing is not None:
        verdict = _challenge(client, name, version, content, standing)
        place = f"standings/{name}-{version}.json"
        client.log_dict(run_id, standing.to_json(), place)
        for tag, value in {**standing.tags(), _STANDING_TAG: f"{run_id}/{place}"}.items():
            client.set_model_version_tag(name, version, tag, value)
        if verdict.wins:
            client.set_registered_model_alias(name, standing.alias, version)
        say(f"{name} version {version} {verdict.reason}")
    return version


def _new_version(
    store: Store, run_id: str, name: str, folder: Path, tags: Mapping[str, str], registration: Registration
) -> ModelVersion:
    """Log the folder as a model with its scores, and register it."""
    client, serving, standing = store.client, registration.serving, registration.standing
    tags = {**tags, NOTE_TAG: _description_of(folder)}
    model = client.create_logged_model(
        store.experiment_id(), name=name, source_run_id=run_id, tags=tags, model_type="bertline"
    )
    try:
        with tempfile.TemporaryDirectory() as temporary:
            written = Path(temporary) / "model"
            write_mlmodel(folder, written, serving, model_id=model.model_id, run_id=run_id)
            client.log_model_artifacts(model.model_id, str(written))
    except BaseException:
        client.finalize_logged_model(model.model_id, "FAILED")
        raise
    client.finalize_logged_model(model.model_id, "READY")
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
    if standing is not None and serving.dataset is not None:
        # The scores are linked to the rows that they were measured on. That on test has the name that it has among the
        # headline metrics of the pipeline.
        task, rows = serving.dataset
        (dataset,) = dataset_inputs({task: (rows, standing.data_hash)})
        client.log_inputs(run_id, [dataset])
        scores = {standing.metric: standing.test_score, f"dev_{standing.metric}": standing.dev.mean}
        measured_on = {"dataset_name": task, "dataset_digest": dataset.dataset.digest, "model_id": model.model_id}
        for score_name, score in scores.items():
            client.log_metric(run_id, f"{task}/{metric_key(score_name)}", score, **measured_on)
    created = client.create_model_version(
        name, model.artifact_location, run_id=run_id, tags=dict(tags), model_id=model.model_id
    )
    # By this tag MLflow lists the versions on the page of the model.
    versions = json.dumps([{"name": name, "version": int(created.version)}])
    client.set_logged_model_tags(model.model_id, {_VERSIONS_TAG: versions})
    return created


def _description_of(folder: Path) -> str:
    """Return the model card without its front matter, as far as MLflow's column holds it; empty without a card."""
    card = folder / _CARD
    if not card.is_file():
        return ""
    text = card.read_text(encoding="utf-8")
    if text.startswith("---\n"):
        text = text.split("\n---\n", 1)[-1]
    text = text.strip()
    if len(text) <= _MAX_DESCRIPTION:
        return text
    rest = f"\n\n(The whole card is `{_CARD}` among the files.)"
    # Cut between paragraphs, not inside a table; a heading is not left alone.
    paragraphs = text[: _MAX_DESCRIPTION - len(rest)].split("\n\n")[:-1]
    while paragraphs and paragraphs[-1].startswith("#"):
        paragraphs.pop()
    return "\n\n".join(paragraphs) + rest


def _challenge(client: MlflowClient, name: str, version: str, content: str, standing: Standing) -> Decision:
    champion = client.get_registered_model(name).aliases.get(standing.alias)
    if champion is None:
        return challenged(standing, None)
    if str(champion) == version:
        return Decision(True, "is the champion already")
    tags = client.get_model_version(name, str(champion)).tags
    if tags.get(_CONTENT_TAG) == content:
        return Decision(True, "holds the champion's weights in the present format and replaces it")
    known: dict[str, Any] = {}
    run_id, _, place = tags.get(_STANDING_TAG, "").partition("/")
    if place:
        with tempfile.TemporaryDirectory() as folder:
            try:
                known = read_json(Path(client.download_artifacts(run_id, place, folder)))
            except (MlflowException, OSError, ValueError) as error:
                warn(f"what is known of the champion cannot be read ({error})")
    return challenged(standing, known)


def _content_of(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name != _CARD and not path.name.startswith("."):
            digest.update(f"{path.name}\0{sha256_of_path(path)}\n".encode())
    return digest.hexdigest()


_SCORES = ("metric", "dev_score", "dev_std", "test_score", "test_std")


def promote(config: TrackingConfig, name: str, *, version: str, alias: str, reason: str) -> tuple[str, str]:
    """Point the alias at a version, and store the reason, the previous version and the time as tags of the version.

    Returns:
        The version that had the alias, or `none`, and the one that has it now, with their scores, for display.
    """
    if not reason.strip():
        raise ConfigError('reason is empty; say why this version is taken, for whoever asks later: reason="..."')
    if not config.enabled:
        raise ConfigError("tracking.enabled is false, so there is no registry. Run with tracking.enabled=true.")
    client = Store(config.uri, config.experiment_name).client
    quoted, uri = name.replace("'", "''"), masked(config.uri)
    try:
        found = client.search_model_versions(f"name = '{quoted}'")
    except MlflowException as error:
        raise ConfigError(f"{name} cannot be looked up in {uri}: {masked(str(error))}") from error
    if not found:
        raise ConfigError(
            f"{uri} has no registered model {name!r}. Run the stage export first, or check task_name and "
            "export.model_name."
        )
    versions = {str(one.version): dict(one.tags) for one in found}
    if version not in versions:
        there = ", ".join(sorted(versions, key=int))
        raise ConfigError(f"{name} has no version {version!r}; it has {there}. Nothing was changed.")
    before = str(client.get_registered_model(name).aliases.get(alias, "none"))
    tags = {"reason": reason.strip(), "before": before, "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M}Z"}
    for tag, value in tags.items():
        client.set_model_version_tag(name, version, f"bertline.promoted.{tag}", value)
    client.set_registered_model_alias(name, alias, version)
    return _described(before, versions), _described(version, versions)


def _described(version: str, versions: Mapping[str, Mapping[str, str]]) -> str:
    if version == "none":
        return version
    tags = versions.get(version, {})
    shown = {name: tags[name] if name == "metric" else f"{float(tags[name]):.4f}" for name in _SCORES if name in tags}
    scores = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())
    return f"version {version} ({scores})" if scores else f"version {version}"
