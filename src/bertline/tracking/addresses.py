"""Addresses of tracking stores: detection of local stores, and masking of credentials."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

_LOCAL_HOSTS = ("", "localhost", "127.0.0.1", "::1")
_PASSWORD = re.compile(r"(?<=://)([^/@\s]*?):[^/@\s]*@")
_SECRETS = r"[\w.-]*(?:passw(?:or)?d|pwd|token|secret|key|credential|signature)[\w.-]*|auth|sig|user(?:name)?"
_SECRET_QUERY = re.compile(rf"(?i)([?&;#](?:{_SECRETS})=)[^&;\s]+")


def masked(text: str) -> str:
    """Mask passwords and tokens in an address or in a message that contains addresses.

    Example:
        >>> masked("cannot reach https://ada:s3cret@mlflow.example.org/api?token=abc")
        'cannot reach https://ada:***@mlflow.example.org/api?token=***'
    """
    return _SECRET_QUERY.sub(r"\1***", _PASSWORD.sub(r"\1:***@", text))


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
