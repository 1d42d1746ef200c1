"""The tasks of conf/task, composed with their bases."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from bertline.foundation.validation import validate
from bertline.kinds.registry import TaskConfig

CONF = Path(__file__).resolve().parents[2] / "conf"
NAMES = sorted(path.stem for path in (CONF / "task").glob("*.yaml"))


def shipped_task(name: str) -> dict[str, Any]:
    """A value that only the user knows is `???`."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        content: Any = OmegaConf.to_container(compose(f"task/{name}"))
    return content["task"]


@dataclass(frozen=True)
class _Tasks:
    tasks: dict[str, TaskConfig]


def validated(name: str, section: dict[str, Any]) -> TaskConfig:
    """The section `tasks.NAME` of a configuration."""
    return validate(_Tasks, {"tasks": {name: section}}).tasks[name]


def shipped(task: str, path: Path | None, /, **source: Any) -> TaskConfig:
    """The task of `conf/task/TASK.yaml` with its files elsewhere; None: its source has none."""
    section = shipped_task(task)
    section["source"] |= {**({} if path is None else {"path": str(path)}), **source}
    return validated(task, section)
