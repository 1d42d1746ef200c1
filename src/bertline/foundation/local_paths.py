"""Removal of local paths from exported files: they are useless elsewhere, and reveal the user's folder names."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

# "/" alone is a separator between columns or labels, not a path.
_ABSOLUTE = re.compile(r"(file:/{1,3}|~[^/\s]*/|/|[A-Za-z]:[\\/])[^/\\].*", re.DOTALL)


def without_local_path(text: str) -> str:
    """Return `./NAME` for an absolute path or a path in a home folder, and any other text unchanged.

    Example:
        >>> without_local_path("/home/ada/models/minilm/"), without_local_path("google-bert/bert-base-uncased")
        ('./minilm', 'google-bert/bert-base-uncased')
        >>> without_local_path("~/texts/*.txt"), without_local_path("/")
        ('./*.txt', '/')
    """
    if not _ABSOLUTE.fullmatch(text):
        return text
    return f"./{PurePosixPath(text.replace(chr(92), '/')).name}"


def without_local_paths(value: Any) -> Any:
    """Apply `without_local_path` to every string inside mappings and lists; keys are not changed."""
    if isinstance(value, str):
        return without_local_path(value)
    if isinstance(value, dict):
        return {key: without_local_paths(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_local_paths(each) for each in value]
    return value
