"""DVC projects for tests of what bertline relies on in DVC."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A DVC project without git, whose remote is a folder; the current folder is in it."""
    dvc_repo = pytest.importorskip("dvc.repo")
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DVC_STAGE", raising=False)
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    with dvc_repo.Repo.init(str(folder), no_scm=True) as repo:
        with repo.config.edit() as config:
            config["remote"]["store"] = {"url": str(tmp_path / "store")}
            config["core"]["remote"] = "store"
        yield repo
