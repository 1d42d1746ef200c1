"""Configuration of tracking."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from bertline.tracking.addresses import has_credentials


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackingConfig:
    """Settings of tracking. No stage depends on them."""

    enabled: bool
    """Whether to record runs in MLflow."""
    uri: str
    """Address of the tracking store: `sqlite:///runs/mlflow.db`, or a server. It must not contain credentials, because
    configurations are written to files that git tracks. MLflow reads credentials from the environment variables
    MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN."""
    experiment_name: str
    """Name of the experiment in MLflow."""
    log_text: bool
    """Whether the user's own text (sample documents, mask predictions, report) may be sent to a remote server."""
    studies_url: str
    """Address of the database in which Optuna stores the studies of all tasks: `sqlite:///runs/studies.db`, or
    PostgreSQL (`postgresql://USER@HOST/DATABASE`), which several machines can share. It must not contain a password,
    because configurations are written to disk. PostgreSQL reads passwords from `~/.pgpass` or PGPASSWORD. The
    environment variable BERTLINE_STUDIES_URL overrides this address and may contain the password."""
    system_metrics: bool
    """Whether to record the load of processor, memory and GPU."""
    system_metrics_every_s: float
    """Seconds between two records of the load."""

    def __post_init__(self) -> None:
        if has_credentials(self.uri):
            # The address itself is not repeated: messages are logged.
            raise ValueError(
                "uri has a user name, a password or a token, and configurations are written to params.yaml, which git "
                "tracks. Leave it out here and set the environment variables that MLflow reads: "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN (for a database, give "
                "its password to the MLflow server and the server's address here)"
            )
        parts = urlsplit(self.studies_url)
        if parts.password is not None or "password" in parse_qs(parts.query):
            raise ValueError(
                "studies_url has a password, and configurations are written to disk. Leave it out here; put it into "
                "~/.pgpass or PGPASSWORD, or give the whole address in the environment variable BERTLINE_STUDIES_URL"
            )
