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
from bertline.orchestration.status import is_locked, read_status

CONFIG_NAME = "config.yaml"
"""File name of the frozen configuration in a run folder."""
_MOST_KEYS = 3
"""Maximum number of changed keys of a run that is reported; with more, it is a training of its own."""
_MOST_MODULES = 3
_CHECKPOINTS = "checkpoints/step-*.pt"

Changes = dict[str, tuple[Any, Any]]
"""Maps names to the value in the unfinished run and the value in the new run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unfinished:
    """A run that has checkpoints and no result, and how it differs from the run that is about to start."""

    folder: Path
    step: int
    """Step of the newest checkpoint."""
    commit: str
    """Commit that the run was last opened with; `none` if unknown."""
    free: Changes
    """Changed keys that change no weights."""
    keys: Changes
    """All other changed keys."""
    inputs: tuple[str, ...]
    code: tuple[str, ...]
    """Modules whose code changed."""
    versions: Changes

    @property
    def is_same_training(self) -> bool:
        """Whether the run ends with the same weights as the new run."""
        return not (self.keys or self.inputs or self.code or self.versions)

    @property
    def is_near(self) -> bool:
        """Whether a person may have meant to resume the run."""
        return not self.inputs and len(self.keys) <= _MOST_KEYS

    def in_words(self) -> str:
        """Return the differences as text."""
        told = [
            f"{key} ({_shown(old)} there, {_shown(new)} here)" for key, (old, new) in (self.keys | self.free).items()
        ]
        if self.inputs:
            told.append(f"what it reads ({', '.join(self.inputs)})")
        if self.code:
            more = len(self.code) - _MOST_MODULES
            told.append(f"the code ({', '.join(self.code[:_MOST_MODULES])}{f' and {more} more' if more > 0 else ''})")
        told += [f"{name} ({old} there, {new} here)" for name, (old, new) in self.versions.items()]
        return " and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told or ["nothing"])


def check_unfinished(folder: Path, made_of: Mapping[str, Any]) -> None:
    """Before a pretraining starts from scratch in `folder`, look for an unfinished one that it would repeat.

    Args:
        folder: `runs/pretrain/FINGERPRINT`; nothing is done if it has checkpoints, from which the run resumes, or if a
            run has begun there, which was checked then.
        made_of: What the fingerprint is computed from: `sections`, `inputs`, `code` and `versions`.

    Raises:
        ConfigError: There is one that ends with the same weights; the message says how to resume it.
    """
    if any(folder.glob(_CHECKPOINTS)) or read_status(folder).state in ("running", "finished"):
        return
    others = (path.parent for path in folder.parent.glob("*/checkpoints") if path.parent != folder)
    near = [each for each in (_compared(other, made_of) for other in others) if each is not None and each.is_near]
    # A different training with a running worker has not been forgotten, so it is not reported.
    near = [each for each in near if each.is_same_training or not is_locked(each.folder)]
    if not near:
        return
    # The same training first, then the one with the fewest changed keys and the most steps.
    found = min(near, key=lambda each: (not each.is_same_training, len(each.keys), -each.step))
    if found.is_same_training:
        stop = "stop its worker, " if is_locked(found.folder) else ""
        raise ConfigError(
            f"{_lies_there(found)}, which changes no weights. To resume it, {stop}rename it, "
            f"`{_renaming(found.folder, folder)}`, and run the same command again; to start from scratch, delete it."
        )
    say(_told_of(found, folder))


def _lies_there(found: Unfinished) -> str:
    return (
        f"{found.folder} is an unfinished pretraining at step {found.step:,}; it differs from this one in "
        f"{found.in_words()}"
    )


def _renaming(source: Path, target: Path) -> str:
    return f"{f'rm -r {target} && ' if target.exists() else ''}mv {source} {target}"


def _told_of(found: Unfinished, folder: Path) -> str:
    """Return a message that the unfinished run exists, and how to resume it."""
    lies_there = f"{_lies_there(found)}, so this one starts from scratch."
    as_begun = "" if found.commit == "none" else f", or check out {found.commit[:12]} to resume it as it was started"
    if any(ABSENT in values for values in found.keys.values()):
        # The other code has other keys, which cannot be set with the present code.
        return f"{lies_there} Its configuration is that of other code{as_begun}."
    if found.keys:
        way = f"give {', '.join(f'{key}={json.dumps(old)}' for key, (old, _) in found.keys.items())}"
    else:
        way = (
            f"rename it, `rm -r {folder} && mv {found.folder} {folder}`, and run the same command again, under the "
            f"present code{as_begun}"
        )
    return f"{lies_there} To resume it instead, stop this one and {way}."


def _compared(folder: Path, made_of: Mapping[str, Any]) -> Unfinished | None:
    """Compare the run in a folder with a new run; None if the folder has no unfinished run."""
    # Imported here, because they load torch, which a recipe needs only if there is something to compare.
    from bertline.pretraining.job import changes_no_weights
    from bertline.training.checkpoints import CheckpointFolder

    frozen, steps = _frozen(folder), CheckpointFolder(folder / "checkpoints", keep=1).steps
    status = read_status(folder)
    if frozen is None or not steps or status.state == "finished" or status.inputs_changed:
        return None
    sections = {key: frozen["config"].get(key) for key in made_of["sections"]}
    keys = differences(sections, dict(made_of["sections"]))
    recorded = frozen["made_of"]
    return Unfinished(
        folder=folder,
        step=steps[-1],
        commit=frozen["commit"],
        free={key: values for key, values in keys.items() if changes_no_weights(key)},
        keys={key: values for key, values in keys.items() if not changes_no_weights(key)},
        inputs=tuple(differences(recorded["inputs"], made_of["inputs"])),
        # Names of modules contain dots, but nothing is nested below them.
        code=tuple(sorted(differences(recorded["code"], made_of["code"]))),
        # A package that only one of the runs uses (for a linear probe) follows from a key, which is compared above.
        versions={
            name: versions
            for name, versions in differences(recorded["versions"], made_of["versions"]).items()
            if name in recorded["versions"] and name in made_of["versions"]
        },
    )


def _frozen(folder: Path) -> dict[str, Any] | None:
    import yaml

    path = folder / CONFIG_NAME
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
