"""The user's data as a dependency: it is stored at, or linked from, a place that DVC watches.

A configuration may name any path; `link_user_data` links to it from its fixed place, so that `dvc repro` notices when
the data changes.
"""

import glob
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.config import PipelineConfig, each_section, pipeline_config
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import write_atomically
from bertline.foundation.progress import say
from bertline.stages.base import SOURCES
from bertline.stages.registry import STAGES
from bertline.tasks.treebank import read_treebank

_PLACEHOLDER = ".place"


def link_user_data(config: PipelineConfig) -> None:
    """Create every place that DVC watches, as a link if the configuration names a path for it."""
    named = _named_paths(config)
    # The checkpoint before the vocabulary, whose path is mostly the same; sources are in `named` alone.
    pretrain_first = sorted(STAGES, key=lambda stage: stage.name != "pretrain")
    tasks = {stage: config.tasks if stage.per_task else (None,) for stage in pretrain_first}
    inputs = [Path(path) for stage, of in tasks.items() for task in of for path in stage.inputs_of(task)]
    # A hidden file, so that DVC has a folder to look at where the corpus is one source.
    write_atomically(SOURCES / _PLACEHOLDER, "Digests of the sources of a corpus of several.\n")
    for place in dict.fromkeys([*(path for path in inputs if path.parts[0] == "data"), *named]):
        if place in named:
            key, path = named[place]
            _link(place, path, key)
        elif not place.exists():
            if place.is_symlink():
                say(f"{place} was a link to {place.readlink()}, which is gone; it is not used now and is removed")
                place.unlink()
            # A hidden file, so that no reader takes it for data; DVC warns about empty folders.
            write_atomically(place / _PLACEHOLDER, f"Put your own data into {place}, or link it there.\n")
        for inner in place.rglob("*"):  # nothing where the place is a file
            if inner.is_symlink() and inner.is_dir():
                raise ConfigError(
                    f"{inner} is a link to a folder, and DVC does not look behind links inside {place}: a change there "
                    f"would go unnoticed. Link {place} itself to the folder that holds it, or copy the files in."
                )


def checked(mapping: Mapping[str, Any]) -> PipelineConfig:
    """Validate a composed configuration; a path that does not exist is named before what would follow from it."""
    try:
        return pipeline_config(mapping)
    except ConfigError:
        check_paths(each_section(mapping))
        raise


def check_paths(config: PipelineConfig) -> None:
    """Check that every path of the user's data exists and is no empty folder, without linking anything."""
    for place, (key, path) in _named_paths(config).items():
        if not _is_in(place, path) or not place.exists():  # into the place itself, data may still be put
            _require_existing(key, path)
    for name in filter(is_local, config.sweep.encoders):
        _require_existing("sweep.encoders", name)
    probe = config.pretrain.head_probe
    if probe is not None and (treebank := base_of(probe.treebank)).exists():
        read_treebank(treebank)  # pretraining would find out after the stages before it


def _is_in(place: Path, path: str) -> bool:
    target = base_of(path)
    return target == place or place in target.parents


def _require_existing(key: str, path: str) -> None:
    target = base_of(path)
    if not target.exists() or holds_nothing(target):
        wrong = "is an empty folder" if target.exists() else "does not exist"
        raise ConfigError(
            f"{key} is {path}; {target} {wrong} (in {Path.cwd()}). Put your data there, or name the path where it is: "
            f"{key}=/path/to/it"
        )


def _named_paths(config: PipelineConfig) -> dict[Path, tuple[str, str]]:
    """Return key and path of the user's data by the place that it is linked from, as the stages name them."""
    named = {
        Path(place): data
        for stage in STAGES
        for task in (config.tasks if stage.per_task else (None,))
        for place, data in stage.paths(config, task).items()
    }
    return {
        place: (data.key, data.value)
        for place, data in named.items()
        if data.value is not None and (not data.may_be_on_hub or is_local(data.value))
    }


def is_local(name_or_path: str) -> bool:
    """Return whether a value is a path; a hub name such as `google-bert/bert-base-uncased` is not."""
    return Path(name_or_path).exists() or name_or_path.startswith((".", "/", "~", "data/"))


def _link(place: Path, path: str, key: str) -> None:
    target = base_of(path)
    _require_existing(key, path)
    if _is_in(place, path):
        return
    if target.resolve() in (Path.cwd(), *Path.cwd().parents):
        raise ConfigError(f"{key} is {path}, which holds bertline itself; put the data into a folder of its own.")
    if place.is_symlink():
        if place.resolve() == target.resolve():
            return
        place.unlink()
    elif place.is_dir() and holds_nothing(place):
        shutil.rmtree(place)
    elif place.exists():
        raise ConfigError(
            f"{key} is {path}, but {place} already holds other data. DVC watches {place}: move what is in it away, or "
            f"set {key}={place}."
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target.resolve())
    say(f"linked {place} -> {target}, so that DVC sees when it changes")


def holds_nothing(place: Path) -> bool:
    """Return whether a place for the user's data is still empty, as `link_user_data` created it."""
    return place.is_dir() and all(inner.name == _PLACEHOLDER for inner in place.iterdir())


def at_hand(path: str) -> bool:
    """Return whether a path of the user's data exists, or a glob's folder, and holds more than its placeholder."""
    base = base_of(path)
    return base.exists() and not holds_nothing(base)


def base_of(path: str) -> Path:
    """Return the longest leading part of a path without wildcards: the folder that a glob searches."""
    whole = Path(path).expanduser()
    if whole.exists() or not glob.has_magic(path):  # brackets may also be part of a name
        return whole
    parts = whole.parts
    plain = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    return Path(*parts[:plain])
