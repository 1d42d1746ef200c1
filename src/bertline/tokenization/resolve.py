"""Resolution of a folder or a Hugging Face hub name to a local folder."""

from __future__ import annotations

from pathlib import Path

from bertline.foundation.errors import DataError

# Weights as safetensors only, and no code files: loading a checkpoint cannot execute code.
_WANTED_FILES = ["*.json", "*.txt", "*.safetensors"]


def resolve_folder(name_or_folder: str, revision: str | None) -> Path:
    """Return an existing folder unchanged, or else the cached hub snapshot of that name, downloaded if necessary.

    Args:
        name_or_folder: `path/to/folder`, or `owner/name` on the Hugging Face hub.
        revision: Commit, tag or branch of the hub name; None for the main branch. Not used for folders.

    Raises:
        DataError: It is neither a folder nor a hub name that can be reached.
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
    # Imported here because the import takes half a second and folders do not need it.
    from huggingface_hub import snapshot_download

    at = f" at revision {revision}" if revision else ""
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=_WANTED_FILES))
    # The hub's errors are subclasses of OSError (offline, no such name or file) and ValueError (invalid name).
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise DataError(
            f"{name!r} is not a folder here, and the Hugging Face hub gave no checkpoint of that name{at} "
            f"({type(error).__name__}: {reason}). Correct the name, or go online, or download it elsewhere and give "
            "the folder."
        ) from error
