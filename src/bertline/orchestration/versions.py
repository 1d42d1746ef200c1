"""Versions of the packages a stage reads or computes with: dependencies, like code, in DVC and in run fingerprints.

`pipelines/versions.py` writes them for DVC at every `dvc repro`, so this module imports nothing slow.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertline.orchestration.stages import PACKAGES, STAGES, Stage, stage_named

if TYPE_CHECKING:
    from bertline.orchestration.config import PipelineConfig

NOT_INSTALLED = "not installed"


def stage_versions(stage: Stage, task: str | None, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions that a stage's result depends on under a configuration.

    Args:
        stage: The stage, which lists the distributions.
        task: Name of the task, for a stage that runs once per task.
        config: The whole configuration, as in params.yaml.

    Returns:
        Distribution to version, without local build tags (`2.13.0+cpu` is `2.13.0`), sorted by name; `python` is the
        minor version (`3.11`).
    """
    names = {*stage.versions}
    for where in stage.versions_where:
        if where.holds(_value(config, where.key.format(task=task))):
            names.update(where.versions)
    if PACKAGES in names:
        names.remove(PACKAGES)
        listed = (package["distribution"] for package in config["python_docs"]["packages"])
        names.update(name for name in listed if name is not None)  # the standard library comes with Python
    python = ".".join(platform.python_version_tuple()[:2])
    return {**{name: _installed(name) for name in sorted(names, key=str.lower)}, "python": python}


def versions_by_stage(config: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the `stage_versions` of every stage that lists any, by the stage's name in DVC."""
    found: dict[str, dict[str, str]] = {}
    for stage in STAGES:
        if not stage.depends_on_versions:
            continue
        for task in config["tasks"] if stage.per_task else (None,):
            found[f"{stage.name}@{task}" if task else stage.name] = stage_versions(stage, task, config)
    return found


def check_packages_of_corpus(config: PipelineConfig, task: str) -> None:
    """Refuse to make rows from other package versions than those of the corpus that the encoder is pretrained on.

    A missing corpus, a corpus of the user's own text and a task with its own data are not checked.

    Raises:
        DataError: A version differs; the message names both versions.
    """
    from bertline.demo.config import DocsSourceConfig
    from bertline.demo.docstrings import check_versions
    from bertline.demo.reader import PythonDocsCorpusConfig

    if isinstance(config.tasks[task].source, DocsSourceConfig) and isinstance(config.corpus, PythonDocsCorpusConfig):
        check_versions(Path(stage_named("corpus").output), config.python_docs)


def _value(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = config[part]
    return config


@functools.cache
def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution).split("+")[0]
    except metadata.PackageNotFoundError:
        return NOT_INSTALLED  # the stage that needs it reports how to install it
