"""Composed configurations for tests of the pipeline."""

from __future__ import annotations

import copy
import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from bertline.config import SECTIONS

CONF = Path(__file__).resolve().parents[3] / "conf"


@pytest.fixture(scope="session")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """`composed("model=small", ...)`: the configuration that conf/ gives, without lasting choices."""

    # Lasting choices of whoever runs the tests must not change what is tested.
    conf = tmp_path_factory.mktemp("conf") / "conf"
    shutil.copytree(CONF, conf, ignore=shutil.ignore_patterns("local"))

    @functools.cache
    def compose_once(*overrides: str) -> dict[str, Any]:
        with initialize_config_dir(str(conf), version_base="1.3"):
            mapping = OmegaConf.to_container(compose("config", overrides=list(overrides)), resolve=True)
        return {section: mapping[section] for section in SECTIONS}  # type: ignore[index,call-overload]

    # A test may change what it gets.
    return lambda *overrides: copy.deepcopy(compose_once(*overrides))


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that stand for Slurm's, and come first on the path."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder
