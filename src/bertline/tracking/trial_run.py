"""A run that is written to a tracking server and deleted again, to see whether a real one could be recorded."""

from __future__ import annotations

from contextlib import suppress

from mlflow.artifacts import get_artifact_repository

from bertline.tracking.store import Store

_ARTIFACT = "doctor.txt"


class ArtifactsRefusedError(Exception):
    """The server takes runs, but no artifacts."""


def try_run(uri: str, experiment_name: str) -> None:
    """Create a run with a metric and an artifact in the experiment, and delete them.

    Args:
        uri: Address of the tracking store.
        experiment_name: Experiment of the pipeline; created if it does not exist, as by a real run.

    Raises:
        ArtifactsRefusedError: The artifact could not be stored; the message is the server's or the storage's.
        Exception: The server refused a request, or could not be reached.
    """
    store = Store(uri, experiment_name)
    client = store.client
    run_id = client.create_run(store.experiment_id(), run_name="doctor").info.run_id
    try:
        client.log_metric(run_id, "doctor", 1.0)
        try:
            client.log_text(run_id, "written by make doctor", _ARTIFACT)
        except Exception as error:
            raise ArtifactsRefusedError(str(error)) from error
        with suppress(Exception):  # some storages do not delete; a few bytes stay
            _delete_artifact(store, run_id)
    except Exception:
        with suppress(Exception):  # what failed first is what is told
            client.delete_run(run_id)
        raise
    client.delete_run(run_id)


def _delete_artifact(store: Store, run_id: str) -> None:
    root = store.client.get_run(run_id).info.artifact_uri
    get_artifact_repository(root, tracking_uri=store.uri).delete_artifacts(_ARTIFACT)
