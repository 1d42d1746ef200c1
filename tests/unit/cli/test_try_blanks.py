"""The model that `bertline try` takes, also while a pretraining replaces its weights."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest

from bertline.run.folder import held


@pytest.fixture
def try_blanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The recipe, in a folder with two runs, of which `a` is the newer one."""
    monkeypatch.chdir(tmp_path)
    for name, seconds in (("a", 2e9), ("b", 1e9)):
        Path("runs/pretrain", name, "latest").mkdir(parents=True)
        os.utime(Path("runs/pretrain", name, "latest"), (seconds, seconds))
    from bertline.cli import inside

    return inside


def test_a_running_pretraining_comes_first_then_the_finished_encoder_then_the_newest_run(
    try_blanks: ModuleType,
) -> None:
    assert try_blanks.newest_model() == Path("runs/pretrain/a/latest")
    Path("artifacts/pretrain").mkdir(parents=True)
    Path("artifacts/pretrain/model.safetensors").touch()
    assert try_blanks.newest_model() == Path("artifacts/pretrain")
    with held(Path("runs/pretrain/b")):
        assert try_blanks.newest_model() == Path("runs/pretrain/b/latest")
