"""Model registry: registers a folder of plain files as a version with an alias."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from bertline.foundation.files import read_json, sha256_of_path
from bertline.foundation.progress import say, warn
from bertline.tracking.champions import Standing, Verdict, challenged
from bertline.tracking.store import Store

_CONTENT_TAG, _STANDING_TAG = "bertline.content", "bertline.standing"
# The card contains measured latencies, which differ between runs.
_CARD = "README.md"


def register_folder(
    store: Store,
    run_id: str,
    *,
    name: str,
    folder: Path,
    alias: str,
    tags: Mapping[str, str],
    standing: Standing | None = None,
) -> str:
    """Upload the folder to the run, register it, point the alias at it, and return the version.

    Content that is already registered, ignoring the card, is not uploaded again. The version is the folder itself
    (config, safetensors, tokenizer, model card), so `mlflow.artifacts.download_artifacts("models:/NAME@ALIAS")` returns
    a folder that `transformers` and `bertline.load` can open. Nothing is pickled.

    Args:
        store: Tracking store.
        run_id: Run to which the files are uploaded.
        name: Name of the registered model.
        folder: Folder to register.
        alias: Alias that always moves to this version.
        tags: Tags of a new version.
        standing: Scores of the version. The alias of the standing moves to this version if no version has it or this
            version beats the one that has it.
    """
    client = store.client
    content = _content_of(folder)
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    known = client.search_model_versions(f"name = '{name}'")
    same = [version.version for version in known if version.tags.get(_CONTENT_TAG) == content]
    if same:
        version = str(same[0])
    else:
        place = f"models/{name}-{content[:12]}"
        client.log_artifacts(run_id, str(folder), place)
        source = f"{client.get_run(run_id).info.artifact_uri}/{place}"
        created = client.create_model_version(name, source, run_id=run_id, tags={**tags, _CONTENT_TAG: content})
        version = str(created.version)
    client.set_registered_model_alias(name, alias, version)
    if standing is not None:
        verdict = _challenge(client, name, version, standing)
        place = f"standings/{name}-{version}.json"
        client.log_dict(run_id, standing.to_json(), place)
        for tag, value in {**standing.tags(), _STANDING_TAG: f"{run_id}/{place}"}.items():
            client.set_model_version_tag(name, version, tag, value)
        if verdict.wins:
            client.set_registered_model_alias(name, standing.alias, version)
        say(f"{name} version {version} {verdict.reason}")
    return version


def _challenge(client: MlflowClient, name: str, version: str, standing: Standing) -> Verdict:
    champion = client.get_registered_model(name).aliases.get(standing.alias)
    if champion is None:
        return challenged(standing, None)
    if str(champion) == version:
        return Verdict(True, "is the champion already")
    return challenged(standing, _standing_of(client, client.get_model_version(name, str(champion)).tags))


def _standing_of(client: MlflowClient, tags: Mapping[str, str]) -> dict[str, Any]:
    """Read the standing stored with a version; empty if there is none or it cannot be read."""
    run_id, _, place = tags.get(_STANDING_TAG, "").partition("/")
    if not place:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            content: dict[str, Any] = read_json(Path(client.download_artifacts(run_id, place, folder)))
        except (MlflowException, OSError, ValueError) as error:
            warn(f"what is known of the champion cannot be read ({error})")
            return {}
    return content


def _content_of(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name != _CARD and not path.name.startswith("."):
            digest.update(f"{path.name}\0{sha256_of_path(path)}\n".encode())
    return digest.hexdigest()
