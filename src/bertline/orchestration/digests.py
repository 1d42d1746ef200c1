"""Digests of the inputs of stages, computed once for each content.

Every recipe needs them, on every machine and at each start, and hashing 100 GB takes minutes. A digest is kept with the
mark of the files that it was computed from (`changed.marks_of`), in `runs/`, which the machines of a run share.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from bertline.foundation.errors import BertlineError
from bertline.foundation.files import read_json, sha256_of_path, write_json
from bertline.orchestration.changed import mark_of
from bertline.orchestration.ownership import time_in

_NAME = "digests.json"
_MOST_KEPT = 1000
# A file system that dates changes coarsely may give a later one the same time. git has the same rule for its index.
_MUST_BE_OLDER_S = 2.0


def digests_of(inputs: Mapping[str, Path], runs_folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each input, a file or a folder.

    Args:
        inputs: Paths by name; all exist.
        runs_folder: Folder in which digests are kept, on the file server of the inputs.
    """
    path = runs_folder / _NAME
    runs_folder.mkdir(parents=True, exist_ok=True)
    kept: dict[str, str] = {}
    with suppress(BertlineError):
        kept = read_json(path)
    found: dict[str, str] = {}
    new: dict[str, str] = {}
    for key, place in inputs.items():
        mark, newest = mark_of(place)
        if mark in kept:
            found[key] = kept[mark]
            continue
        found[key] = sha256_of_path(place)
        # Both times are the file server's: the clock of this machine may be ahead of it.
        if time_in(runs_folder) - newest > _MUST_BE_OLDER_S and mark_of(place)[0] == mark:
            new[mark] = found[key]
    if new:
        with suppress(BertlineError):  # keeping them only saves time
            write_json(path, {**(kept if len(kept) < _MOST_KEPT else {}), **new})
    return found
