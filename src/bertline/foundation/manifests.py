"""Manifests: the description in each artifact folder, for the next stage and for users."""

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import read_json, write_json

MANIFEST_NAME = "manifest.json"


def write_manifest(folder: Path, *, kind: str, format_version: int, content: dict[str, Any]) -> None:
    """Write `manifest.json`: `kind` identifies the artifact type, `format_version` its layout;
    `content` is the rest.

    The content must depend on the input and the configuration only (no dates, no host names), so
    that an artifact is byte-identical each time it is built.
    """
    write_json(folder / MANIFEST_NAME, {"kind": kind, "format_version": format_version, **content})


def read_manifest(folder: Path, *, kind: str, format_version: int) -> dict[str, Any]:
    """Read a manifest and check its kind and format version.

    Raises:
        ArtifactError: The manifest is missing, or has another kind or format version.
    """
    path = folder / MANIFEST_NAME
    manifest = read_json(path)
    found = manifest.get("kind") if isinstance(manifest, dict) else type(manifest).__name__
    if found != kind:
        raise ArtifactError(f"{path}: kind is {found!r}, expected {kind!r}. Is this the right folder?")
    require_version(path, manifest, format_version, " Run the stage that writes it again.")
    return manifest


def require_version(path: Path, content: Mapping[str, Any], version: int, fix: str = "") -> None:
    """Raise ArtifactError, which ends with the `fix`, if a file has another `format_version`."""
    if (found := content.get("format_version")) != version:
        raise ArtifactError(f"{path}: format_version is {found!r}, this bertline reads {version}.{fix}")


def versions_of(*distributions: str) -> dict[str, str]:
    """Return installed versions for a manifest, without local build tags (`2.13.0+cpu` gives
    `2.13.0`)."""
    return {name: metadata.version(name).split("+")[0] for name in sorted(distributions)}
