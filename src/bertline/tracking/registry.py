"""The model registry: a folder of plain files becomes a version with an alias."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlflow.exceptions import MlflowException

from bertline.foundation.files import sha256_of_path
from bertline.tracking.store import Store

_CONTENT_TAG = "bertline.content"


def register_folder(store: Store, run_id: str, *, name: str, folder: Path, alias: str, tags: Mapping[str, str]) -> str:
    """Upload the folder to the run, register it, point the alias at it; return the version.

    Content that is registered already is not uploaded again. The version is the folder itself (config, safetensors,
    tokenizer, model card), so `mlflow.artifacts.download_artifacts("models:/NAME@ALIAS")` gives what
    `transformers` and `bertline.load` open; nothing is pickled.
    """
    client = store.client
    content = sha256_of_path(folder)
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
    return version
