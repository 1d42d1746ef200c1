"""Unfinished pretrainings in other run folders, which a new run would repeat.

A run folder is named by its fingerprint, so every changed key gives another folder, where a run starts from scratch.
If all changed keys leave the weights as they are, that is refused: the folder of the unfinished run, renamed to the new
fingerprint, is resumed. A run with a few other keys, or of other code or library versions, is reported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.foundation.errors import ConfigError
from bertline.foundation.mappings import ABSENT, differences
from bertline.foundation.progress import say
from bertline.orchestration.changed import shown
from bertline.orchestration.ownership import is_locked
from bertline.orchestration.status import read_status

CONFIG_NAME = "config.yaml"
"""File name of the frozen configuration in a run folder."""
_MOST_KEYS = 3
"""Maximum number of changed keys of a run that is reported; with more, it is a training of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unfinished:
    """A run that has checkpoints and no result, and how it differs from the run that is about to start."""

    folder: Path
    step: int
    """Step of the newest checkpoint."""
    commit: str
    """Commit that the run was last opened with; `none` if unknown."""
    keys: dict[str, tuple[Any, Any]]
    """Changed keys that change the weights, with the value there and the value here."""
    other_code: bool
    """Whether the code or the version of a package changed."""
    differences: str
    """All changes as text."""

    @property
    def is_same_training(self) -> bool:
        """Whether the run ends with the same weights as the new run."""
        return not (self.keys or self.other_code)


def check_unfinished(folder: Path, made_of: Mapping[str, Any]) -> None:
    """Before a pretraining starts from scratch in `folder`, look for an unfinished one that it would repeat.

    Args:
        folder: `runs/pretrain/FINGERPRINT`; nothing is done if it has checkpoints, from which the run resumes, or if a
            run has begun there, which was checked then.
        made_of: What the fingerprint is computed from: `sections`, `inputs`, `code` and `versions`.

    Raises:
        ConfigError: There is one that ends with the same weights; the message says how to resume it.
    """
    if any(folder.glob("checkpoints/step-*.pt")) or read_status(folder).state in ("running", "finished"):
        return
    others = (path.parent for path in folder.parent.glob("*/checkpoints") if path.parent != folder)
    near = [each for each in (_compared(other, made_of) for other in others) if each is not None]
    # A different training with a running worker has not been forgotten, so it is not reported.
    near = [each for each in near if each.is_same_training or not is_locked(each.folder)]
    if not near:
        return
    # The same training first, then the one with the fewest changed keys and the most steps.
    found = min(near, key=lambda each: (not each.is_same_training, len(each.keys), -each.step))
    lies_there = (
        f"{found.folder} is an unfinished pretraining at step {found.step:,}; it differs from this one in "
        f"{found.differences}"
    )
    if found.is_same_training:
        stop = "stop its worker, " if is_locked(found.folder) else ""
        make_room = f"rm -r {folder} && " if folder.exists() else ""
        raise ConfigError(
            f"{lies_there}, which changes no weights. To resume it, {stop}rename it, `{make_room}mv {found.folder} "
            f"{folder}`, and run the same command again; to start from scratch, delete it."
        )
    # Keys of other code cannot be set with the present code.
    given = [f"{key}={json.dumps(old)}" for key, (old, new) in found.keys.items() if ABSENT not in (old, new)]
    steps = [f"give {', '.join(given)}"] if given else []
    if found.other_code and found.commit != "none":
        steps.append(f"check out {found.commit[:12]}")
    how = f" To resume it instead, stop this one and {' and '.join(steps)}." if steps else ""
    say(f"{lies_there}, so this one starts from scratch.{how}")


def _compared(folder: Path, made_of: Mapping[str, Any]) -> Unfinished | None:
    """Compare the run in a folder with a new run; None unless it is unfinished, and a person may mean to resume it."""
    # Imported here, because they load torch, which a recipe needs only if there is something to compare.
    import yaml

    from bertline.pretraining.job import changes_no_weights
    from bertline.training.checkpoints import CheckpointFolder

    steps, status = CheckpointFolder(folder / "checkpoints", keep=1).steps, read_status(folder)
    if not steps or status.state == "finished" or status.inputs_changed or not (folder / CONFIG_NAME).exists():
        return None
    frozen = yaml.safe_load((folder / CONFIG_NAME).read_text(encoding="utf-8"))
    recorded = frozen["made_of"]
    changes = differences({key: frozen["config"].get(key) for key in made_of["sections"]}, dict(made_of["sections"]))
    keys = {key: values for key, values in changes.items() if not changes_no_weights(key)}
    if len(keys) > _MOST_KEYS or recorded["inputs"] != made_of["inputs"]:
        return None
    # Names of modules contain dots, but nothing is nested below them.
    code = sorted(differences(recorded["code"], made_of["code"]))
    # A package that only one of the runs uses (for a linear probe) follows from a key, which is compared above.
    versions = {
        name: values
        for name, values in differences(recorded["versions"], made_of["versions"]).items()
        if ABSENT not in values
    }
    told = {key: (_shown(old), _shown(new)) for key, (old, new) in (keys | changes).items()} | versions
    words = [f"{key} ({old} there, {new} here)" for key, (old, new) in told.items()]
    return Unfinished(
        folder=folder,
        step=steps[-1],
        commit=frozen["commit"],
        keys=keys,
        other_code=bool(code or versions),
        differences=", ".join([*words, *([f"the code ({shown(code)})"] if code else [])]) or "nothing",
    )


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
