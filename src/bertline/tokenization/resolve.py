"""From a folder or a Hugging Face hub name to a folder on this machine."""

from __future__ import annotations

from pathlib import Path

from bertline.foundation.errors import DataError

# Weights only as safetensors, and no code: nothing that is loaded from a checkpoint can run.
_WANTED_FILES = ["*.json", "*.txt", "*.safetensors"]


def resolve_folder(name_or_folder: str, revision: str | None) -> Path:
    """Return an existing folder as it is, else the hub's snapshot of that name, downloaded once.

    Args:
        name_or_folder: `path/to/folder`, or `owner/name` on the Hugging Face hub.
        revision: A commit, tag or branch of the hub name; None takes its main branch. Not used for folders.

    Raises:
        DataError: Neither a folder nor a name that can be reached.
    """
    folder = Path(name_or_folder).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_file():
        raise DataError(f"{folder} is a file; expected a folder with a BERT checkpoint or a Hugging Face hub name.")
    if name_or_folder.count("/") > 1 or name_or_folder.startswith((".", "/", "~")):
        raise DataError(
            f"{folder} does not exist; expected a folder with a BERT checkpoint or a hub name (owner/name)."
        )
    return _hub_snapshot(name_or_folder, revision)


def _hub_snapshot(name: str, revision: str | None) -> Path:
    # Imported here: it takes half a second, and folders do not need it.
    from huggingface_hub import snapshot_download

    at = f" at revision {revision}" if revision else ""
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=_WANTED_FILES))
    # The hub's own errors are kinds of OSError (offline, no such name or file) and of ValueError (not a name at all).
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise DataError(
            f"{name!r} is not a folder here, and the Hugging Face hub gave no checkpoint of that name{at} "
            f"({type(error).__name__}: {reason}). Correct the name, or go online, or download it elsewhere and give "
            "the folder."
        ) from error
