"""promote: make a version of a task's model the champion by hand, with a reason that is stored with it.

python pipelines/promote.py task_name=docs_library version=3 reason="better on rare labels, see the report of 3 May"
python pipelines/promote.py task_name=encoder version=2 reason="the first one trained on the whole corpus"
"""

import on_ctrl_c  # noqa: F401

# isort: split
from typing import Any

from bertline.foundation.errors import ConfigError
from bertline.foundation.progress import say
from bertline.orchestration.config import SECTIONS, pipeline_config
from bertline.tracking.registry import promote
from composition import recipe


def main(asked: dict[str, Any]) -> None:
    """Move the alias, and print the version before and after."""
    config = pipeline_config({key: asked[key] for key in SECTIONS})
    task = asked["task_name"]
    if task != "encoder" and task not in config.tasks:
        raise ConfigError(f"task_name is {task!r}; expected encoder or one of {', '.join(config.tasks)}")
    name = config.export.model_name if task == "encoder" else f"{config.export.model_name}-{task}"
    reason = "" if asked["reason"] is None else str(asked["reason"])
    before, after = promote(
        config.tracking, name, version=str(asked["version"]), alias=config.export.champion_alias, reason=reason
    )
    say(f"{name}, {config.export.champion_alias}: was {before}")
    say(f"{name}, {config.export.champion_alias}: is {after}")
    say(f"reason: {reason.strip()}")


if __name__ == "__main__":
    recipe(main, config="promote")()
