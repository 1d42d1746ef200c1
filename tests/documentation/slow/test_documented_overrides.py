"""Every override in a command of README and docs/ has an effect: without it, configuration or search is another."""

from __future__ import annotations

import contextlib
import functools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from bertline.cli.overrides import quoted_where_needed, refuse_unused
from bertline.config import SECTIONS, pipeline_config
from bertline.foundation.errors import ConfigError
from bertline.foundation.validation import to_mapping
from bertline.sweep.space import planned_points, space_of

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|\s)(bertline (?!complet)[\w-]+|dvc exp run|python pipelines/\w+\.py) ")
OVERRIDE = re.compile(r"[+~]{0,2}[a-z][\w./@]*(=.*)?$", flags=re.DOTALL)


def documented() -> dict[str, tuple[str, list[str]]]:
    """The file of conf/ that a command composes, and its overrides, by page and command."""
    commands = {}
    for page in PAGES:
        text = page.read_text()
        code = [block for language, block in BLOCK.findall(text) if language in ("bash", "sh", "console")]
        for block in [*code, *re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))]:
            for line in block.replace("\\\n", " ").splitlines():
                if found := COMMAND.search(line):
                    rest = line[found.end() :].partition(" && ")[0]
                    # It may stand in the quotes of another command.
                    words = shlex.split(rest.removesuffix("'") if rest.count("'") % 2 else rest, comments=True)
                    own = found[1].removeprefix("bertline ")
                    config = own if (ROOT / f"conf/{own}.yaml").exists() else "config"
                    overrides = [word for word in words if OVERRIDE.match(word) and ("=" in word or word[0] == "~")]
                    if overrides and not any("…" in word or ("," in word and "-m" in words) for word in words):
                        commands[f"{page.name}: {' '.join([own, *overrides])}"] = config, overrides
    return commands


COMMANDS = documented()
# Files that the reader makes on the page, and what stands for a name.
# What the page has saved before.
SAVED = {
    "cluster.md: python": ["runtime=slurm"],
    "cluster.md: configure runtime.launcher": ["runtime=slurm"],
    "continue.md: configure experiment=domain ": ["schedule.num_warmup_steps=50"],
}
RESTATED = ("runtime.num_nodes=2", "runtime.num_devices=8")  # what runtime=slurm has, next to what differs
READERS = re.compile(r"=(\w*reviews|markdown|mlm_z|sgd|NAME|\.\.\.|\[\.\.\.\])( |$)")
SEARCH = re.compile(r"[+~]*(sweep|tasks\.\w+)(\.space|\.fine_tuning|\.num_trials|=)")


@functools.cache
def composed(config: str, *overrides: str) -> Any:
    """The composition, or why there is none."""
    try:
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            return OmegaConf.to_container(compose(config, overrides=quoted_where_needed(overrides)))
    except (HydraException, OmegaConfBaseException) as error:
        return str(error)


def searches(composition: Any) -> Any:
    """What the tasks' trials are: their points, what they vary, what they have in common."""
    config = pipeline_config({section: composition[section] for section in SECTIONS})
    return {
        name: (
            planned_points(config.sweep, task),
            space := space_of(config.sweep, task),
            {**to_mapping(config.sweep.fine_tuning), **task.fine_tuning, **dict.fromkeys(space)},
        )
        for name, task in config.tasks.items()
        if name == (composition["task_name"] or name)
    }


@pytest.mark.parametrize("command", [command for command in COMMANDS if not READERS.search(command)])
def test_no_override_of_a_documented_command_is_without_effect(command: str) -> None:
    config, overrides = COMMANDS[command]
    saved = next((choices for start, choices in SAVED.items() if command.startswith(start)), [])
    whole = composed(config, *saved, *overrides)
    assert not isinstance(whole, str), whole
    if config == "config":
        refuse_unused(whole, overrides)
    for override in overrides:
        without = composed(config, *saved, *(one for one in overrides if one != override))
        assert whole != without or override in RESTATED, override
        if config == "config" and SEARCH.match(override) and not isinstance(without, str):
            searched = searches(whole)
            with contextlib.suppress(ConfigError):  # without it, there is none
                assert searched != searches(without), override
