"""Addresses of tracking stores: which are on this machine, and how to show one without its password."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

_LOCAL_HOSTS = ("", "localhost", "127.0.0.1", "::1")
_PASSWORD = re.compile(r"(?<=://)([^/@\s]*?):[^/@\s]*@")
_SECRET_QUERY = re.compile(r"(?i)([?&](?:password|token|secret|key|access_token)=)[^&\s]+")


def masked(text: str) -> str:
    """An address, or a message with addresses in it, without passwords and tokens.

    Example:
        >>> masked("cannot reach https://ada:s3cret@mlflow.example.org/api?token=abc")
        'cannot reach https://ada:***@mlflow.example.org/api?token=***'
    """
    return _SECRET_QUERY.sub(r"\1***", _PASSWORD.sub(r"\1:***@", text))


def is_local(uri: str) -> bool:
    """Whether records stay on this machine.

    Example:
        >>> is_local("sqlite:///runs/mlflow.db"), is_local("http://127.0.0.1:5000"), is_local("http://mlflow:5000")
        (True, True, False)
    """
    return uri.startswith("sqlite:") or (urlsplit(uri).hostname or "") in _LOCAL_HOSTS


def database_file(uri: str) -> Path | None:
    """The file of an SQLite address, None for anything else.

    Example:
        >>> database_file("sqlite:///runs/mlflow.db").as_posix()
        'runs/mlflow.db'
        >>> database_file("http://127.0.0.1:5000") is None
        True
    """
    return Path(uri.removeprefix("sqlite:///").split("?")[0]) if uri.startswith("sqlite:///") else None
