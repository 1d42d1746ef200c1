"""Configuration of tracking."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

STUDIES_VARIABLE = "BERTLINE_STUDIES_URL"
"""Environment variable that overrides `studies_url`."""


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


_LOCAL_HOSTS = ("", "localhost", "127.0.0.1", "::1")
_PASSWORD = re.compile(r"(?<=://)([^/@\s]*?):[^/@\s]*@")
_SECRETS = r"[\w.-]*(?:passw(?:or)?d|pwd|token|secret|key|credential|signature)[\w.-]*|auth|sig|user(?:name)?"
_SECRET_QUERY = re.compile(rf"(?i)([?&;#](?:{_SECRETS})=)[^&;\s]+")


# Tokens that are known by their form: Hugging Face, AWS, GitHub, GitLab, Databricks.
_TOKENS = re.compile(
    r"\b(hf_|AKIA|gh[pousr]_|github_pat_|glpat-|dapi)(?:(?<=AKIA)[0-9A-Z]{16}|(?<!AKIA)[A-Za-z0-9_-]{20,})"
)
# `export NAME=value` as in the set-up lines of a job; what a shell is to find out ($NAME, `cat file`) is no secret.
_ASSIGNMENT = re.compile(
    r"""\b([A-Z0-9_]*(?:TOKEN|PASSWORD|PASSWD|SECRET|API_KEY|ACCESS_KEY)[A-Z0-9_]*=)(?!["']?[$`])["']?[^\s"']+["']?"""
)


def masked(text: str) -> str:
    """Mask passwords and tokens in an address or in a message that contains addresses.

    Example:
        >>> masked("cannot reach https://ada:s3cret@mlflow.example.org/api?token=abc")
        'cannot reach https://ada:***@mlflow.example.org/api?token=***'
        >>> masked("export MLFLOW_TRACKING_TOKEN=abc HF_TOKEN=$(cat file)")
        'export MLFLOW_TRACKING_TOKEN=*** HF_TOKEN=$(cat file)'
    """
    without_addresses = _SECRET_QUERY.sub(r"\1***", _PASSWORD.sub(r"\1:***@", text))
    return _ASSIGNMENT.sub(r"\1***", _TOKENS.sub(r"\1***", without_addresses))


def has_credentials(uri: str) -> bool:
    """Return whether an address has a user name or password before its host, or a secret in its query.

    The user name of a database alone does not count: it is not secret, and the driver reads it only from the address.

    Example:
        >>> has_credentials("https://ada:s3cret@mlflow.example.org"), has_credentials("https://h/?api_key=abc")
        (True, True)
        >>> has_credentials("https://mlflow.example.org"), has_credentials("postgresql://ada@db/mlflow")
        (False, False)
    """
    parts = urlsplit(uri)
    name_alone = parts.username if parts.scheme.startswith("http") else None
    return bool(parts.password or name_alone or _SECRET_QUERY.search(uri))


def is_local(uri: str) -> bool:
    """Return whether a store is on this machine.

    Example:
        >>> is_local("sqlite:///runs/mlflow.db"), is_local("http://127.0.0.1:5000"), is_local("http://mlflow:5000")
        (True, True, False)
    """
    return uri.startswith("sqlite:") or (urlsplit(uri).hostname or "") in _LOCAL_HOSTS


def database_file(uri: str) -> Path | None:
    """Return the file of an SQLite address; None for other addresses.

    Example:
        >>> database_file("sqlite:///runs/mlflow.db").as_posix()
        'runs/mlflow.db'
        >>> database_file("http://127.0.0.1:5000") is None
        True
    """
    return Path(uri.removeprefix("sqlite:///").split("?")[0]) if uri.startswith("sqlite:///") else None
