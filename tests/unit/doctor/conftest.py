"""The runtime section and the configuration that conf/ gives."""

from __future__ import annotations

import dataclasses
import functools
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from bertline.orchestration.config import SECTIONS, pipeline_config

CONF = Path(__file__).resolve().parents[3] / "conf"


@pytest.fixture(scope="session")
def config(tmp_path_factory):
    """`config("model=small", ...)`: the validated configuration, without lasting choices."""
    conf = tmp_path_factory.mktemp("conf") / "conf"
    shutil.copytree(CONF, conf, ignore=shutil.ignore_patterns("local"))

    @functools.cache  # a composition takes 0.4 s; what it gives is frozen
    def composed(*overrides):
        with initialize_config_dir(str(conf), version_base="1.3"):
            mapping = OmegaConf.to_container(compose("config", overrides=list(overrides)), resolve=True)
        return pipeline_config({section: mapping[section] for section in SECTIONS})

    return composed


@pytest.fixture
def runtime(config):
    """`runtime(num_devices=2)`: the runtime section with changes."""

    return functools.partial(dataclasses.replace, config().runtime)


@pytest.fixture
def small_disk(tmp_path):
    """A folder with a file system of 256 KiB."""
    with mounted(tmp_path / "small", "size=256k") as folder:
        yield folder


@pytest.fixture
def few_inodes(tmp_path):
    """A folder with a file system for 100 files."""
    with mounted(tmp_path / "few", "nr_inodes=100") as folder:
        yield folder


@contextmanager
def mounted(folder, options):
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "none", folder]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No variables of a launcher."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "BERTLINE_STUDIES_URL", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
