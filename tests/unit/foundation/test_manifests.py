"""Manifests refuse to be read as something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertline.foundation.errors import ArtifactError
from bertline.foundation.manifests import read_manifest, write_manifest


def test_a_manifest_of_another_kind_or_version_is_refused(tmp_path: Path) -> None:
    write_manifest(tmp_path, kind="corpus", format_version=1, content={"documents": 3})
    assert read_manifest(tmp_path, kind="corpus", format_version=1)["documents"] == 3
    with pytest.raises(ArtifactError, match="kind is 'corpus', expected 'examples'"):
        read_manifest(tmp_path, kind="examples", format_version=1)
    with pytest.raises(ArtifactError, match="format_version is 1, this bertline reads 2"):
        read_manifest(tmp_path, kind="corpus", format_version=2)
