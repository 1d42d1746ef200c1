"""Unfinished pretrainings in other run folders: a new run resumes them, or at least reports them.

A run folder is named by its fingerprint, so every changed key gives another folder. If all changed keys leave the
weights as they are, the unfinished run's folder is renamed to the new fingerprint, with its checkpoints and records.
The rename is atomic; after a kill right behind it, the next start finds checkpoints in the new folder and resumes from
them. A run of other code or library versions is reported, and resumed only on request.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.foundation.errors import ConfigError, MachineError
from bertline.foundation.files import cannot_write
from bertline.foundation.mappings import ABSENT, differences
from bertline.foundation.progress import say
from bertline.orchestration.provenance import running_under_dvc
from bertline.orchestration.status import hold_lock, is_locked, read_status

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


def take_over(folder: Path, made_of: Mapping[str, Any], *, asked: str | None = None) -> None:
    """Before a pretraining starts in `folder`, take over an unfinished one from another run folder, or report it.

    Args:
        folder: `runs/pretrain/FINGERPRINT`; if it has checkpoints, the run resumes from those and, unless `asked` is
            given, nothing is done here.
        made_of: What the fingerprint is computed from: `sections`, `inputs`, `code` and `versions`.
        asked: Folder, or its name, of an unfinished run that a person wants to resume with the present code and library
            versions.

    Raises:
        ConfigError: The run asked for is not unfinished, has a running worker or is another training, or `folder` has
            checkpoints or a worker of its own.
        MachineError: The folder cannot be renamed.
    """
    if asked is None and (_has_saved(folder) or not any(folder.parent.glob(f"*/{_CHECKPOINTS}"))):
        return
    with _one_at_a_time(folder.parent):
        if asked is not None:
            _take_over_asked(folder, folder.parent / Path(str(asked)).name, made_of)
        elif not _has_saved(folder):
            _take_over_found(folder, made_of)


def went_on_from(folder: Path, fingerprint: str, made_of: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the runs whose checkpoints and records a folder continues, oldest first, as plain data for config.yaml.

    Each has its former `fingerprint`, the `step` that its checkpoints had reached, and what `differs` in the next one.
    """
    frozen = _frozen(folder)
    if frozen is None:
        return []
    before: list[dict[str, Any]] = frozen.get("went_on_from", [])
    found = None if frozen["fingerprint"] == fingerprint else _compared(folder, made_of)
    if found is None:
        return before
    return [*before, {"fingerprint": frozen["fingerprint"], "step": found.step, "differs": found.in_words()}]


def _take_over_found(folder: Path, made_of: Mapping[str, Any]) -> None:
    others = (path.parent for path in folder.parent.glob("*/checkpoints") if path.parent != folder)
    near = [each for each in (_compared(other, made_of) for other in others) if each is not None and each.is_near]
    at_work = {each.folder: _is_at_work(each.folder) for each in near}
    # A different training with a running worker has not been forgotten, so it is not reported.
    near = [each for each in near if each.is_same_training or not at_work[each.folder]]
    if not near:
        return
    # The same training first, then one without a worker, then the one with the fewest changed keys and the most steps.
    found = min(near, key=lambda each: (not each.is_same_training, at_work[each.folder], len(each.keys), -each.step))
    if not found.is_same_training or at_work[found.folder]:
        if read_status(folder).state != "running":  # else it was reported when that run started
            say(_told_of(found, at_work=at_work[found.folder]))
    elif not _is_at_work(folder) and _moved(found.folder, folder):
        say(
            f"pretraining resumes {found.folder} from step {found.step:,}, now in {folder}: what differs changes "
            f"no weights, {found.in_words()}"
        )


def _take_over_asked(folder: Path, source: Path, made_of: Mapping[str, Any]) -> None:
    if source == folder or (not source.exists() and _came_from(folder, source.name)):
        return  # it has already been moved
    found = _compared(source, made_of)
    if found is None:
        raise ConfigError(
            f"resume_from names {source}, which is not an unfinished pretraining: it has no checkpoints, it is "
            "finished (pretrain.extends continues a finished one), or its inputs changed while it ran."
        )
    if found.keys or found.inputs:
        raise ConfigError(
            f"resume_from names {source}, which is another training than this one. It differs in {found.in_words()}. "
            "Only code, library versions and keys that change no weights may; give the others as they were."
        )
    if _has_saved(folder) or _is_at_work(folder):
        raise ConfigError(
            f"resume_from names {source}, but this run has checkpoints, or a worker, of its own in {folder}. Stop it "
            f"and delete that folder to resume {source} (step {found.step:,})."
        )
    if not _moved(source, folder):
        raise ConfigError(f"resume_from names {source}, which a worker is at now. Stop it first, or let it finish.")
    say(f"pretraining resumes {source} from step {found.step:,}, now in {folder}: it differs in {found.in_words()}")


def _told_of(found: Unfinished, *, at_work: bool) -> str:
    """Return a message that the unfinished run exists, and how to resume it."""
    lies_there = (
        f"{found.folder} is an unfinished pretraining at step {found.step:,}"
        f"{', at work now' if at_work else ''}; it differs from this one in "
        f"{found.in_words()}, so this one starts from scratch."
    )
    if found.is_same_training:
        return f"{lies_there} To resume it instead, stop both and run the same command again."
    commit = found.commit
    as_begun = "" if commit == "none" else f", or check out {commit[:12]} to resume it exactly as it was started"
    if any(ABSENT in values for values in found.keys.values()):
        # The other code has other keys, which cannot be set with the present code.
        return f"{lies_there} Its configuration is that of other code{as_begun}."
    ways = (
        [f"give {', '.join(f'{key}={json.dumps(old)}' for key, (old, _) in found.keys.items())}"] if found.keys else []
    )
    if found.code or found.versions:
        command = (
            "python pipelines/pretrain.py --config-dir . --config-name params" if running_under_dvc() else "the command"
        )
        ways.append(f"run {command} with +resume_from={found.folder}, under the present code{as_begun}")
    return f"{lies_there} To resume it instead, stop this one and {' and '.join(ways)}."


def _compared(folder: Path, made_of: Mapping[str, Any]) -> Unfinished | None:
    """Compare the run in a folder with a new run; None if the folder has no unfinished run."""
    # Imported here, because they load torch, which a recipe needs only if there is something to compare.
    from bertline.pretraining.identity import changes_no_weights
    from bertline.training.checkpoints import CheckpointFolder

    frozen, steps = _frozen(folder), CheckpointFolder(folder / "checkpoints", keep=1).steps
    status = read_status(folder)
    if frozen is None or not steps or status.state == "finished" or status.inputs_changed:
        return None
    sections = {key: frozen["config"].get(key) for key in made_of["sections"]}
    keys = differences(sections, dict(made_of["sections"]))
    # Runs of an older bertline, which did not record this, were made by other code than the present one.
    recorded = frozen.get("made_of", {"inputs": made_of["inputs"], "code": {}, "versions": made_of["versions"]})
    return Unfinished(
        folder=folder,
        step=steps[-1],
        commit=frozen.get("commit", "none"),
        free={key: values for key, values in keys.items() if changes_no_weights(key)},
        keys={key: values for key, values in keys.items() if not changes_no_weights(key)},
        inputs=tuple(differences(recorded["inputs"], made_of["inputs"])),
        code=_changed_modules(recorded["code"], made_of["code"]),
        # A package that only one of the runs uses (for a linear probe) follows from a key, which is compared above.
        versions={
            name: versions
            for name, versions in differences(recorded["versions"], made_of["versions"]).items()
            if name in recorded["versions"] and name in made_of["versions"]
        },
    )


def _changed_modules(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, ...]:
    if not old:
        return ("of an earlier bertline",)
    # Names of modules contain dots, so they are not compared as dotted keys.
    return tuple(sorted(name for name in {*old, *new} if old.get(name) != new.get(name)))


def _moved(source: Path, target: Path) -> bool:
    """Rename a run folder to one in which nothing was saved; return False if a worker has just started in it."""
    with hold_lock(source) as free:
        if not free:
            return False
        try:
            if target.exists():
                shutil.rmtree(target)
            source.rename(target)
        except OSError as error:
            raise MachineError(cannot_write(target, error)) from error
        return True


def _has_saved(folder: Path) -> bool:
    """Return whether a run folder has checkpoints of its own, or a result."""
    return any(folder.glob(_CHECKPOINTS)) or read_status(folder).state == "finished"


def _is_at_work(folder: Path) -> bool:
    """Return whether a worker is running in a folder. This tries the lock, which blocks a worker that starts at that
    moment, so do not call it without need."""
    return folder.exists() and is_locked(folder)


def _came_from(folder: Path, name: str) -> bool:
    frozen = _frozen(folder) or {"fingerprint": ""}
    return name in (frozen["fingerprint"], *(each["fingerprint"] for each in frozen.get("went_on_from", [])))


def _frozen(folder: Path) -> dict[str, Any] | None:
    import yaml

    path = folder / CONFIG_NAME
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@contextmanager
def _one_at_a_time(runs: Path) -> Iterator[None]:
    """Hold a lock, so that of two recipes that start together only one moves folders; the second sees the outcome."""
    runs.mkdir(parents=True, exist_ok=True)
    with (runs / ".taking_over").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
