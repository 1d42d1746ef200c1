"""The tasks of conf/task, composed with their bases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

CONF = Path(__file__).resolve().parents[2] / "conf"
NAMES = sorted(path.stem for path in (CONF / "task").glob("*.yaml"))


def shipped_task(name: str) -> dict[str, Any]:
    """A value that only the user knows is `???`."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        content: Any = OmegaConf.to_container(compose(f"task/{name}"))
    return content["task"]
