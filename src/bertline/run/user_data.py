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
from bertline.corpus.registry import SourcesCorpusConfig, key_of, readers_of
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import write_atomically
from bertline.foundation.progress import say
from bertline.run import stages
from bertline.tasks.treebank import read_treebank
from bertline.tokenization.config import ExistingTokenizerConfig, ExtendedTokenizerConfig

_PLACEHOLDER = ".place"
_OF_TASKS = (stages.USER_TASKS, stages.USER_START, stages.USER_TEACHER, stages.USER_UNLABELLED)


def link_user_data(config: PipelineConfig) -> None:
    """Create every place that DVC watches, as a link if the configuration names a path for it."""
    named = _named_paths(config)
    of_tasks = [folder / task for task in config.tasks for folder in _OF_TASKS]
    sources = config.corpus.sources if isinstance(config.corpus, SourcesCorpusConfig) else {}
    of_sources = [stages.USER_SOURCES / name for name in sources]
    # A hidden file, so that DVC has a folder to look at where the corpus is one source.
    write_atomically(stages.SOURCES / _PLACEHOLDER, "Digests of the sources of a corpus of several.\n")
    # The checkpoint before the vocabulary, whose path is mostly the same.
    for place in (stages.USER_TEXT, *stages.PRETRAINING_DATA, stages.USER_VOCABULARY, *of_tasks, *of_sources):
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
    if probe is not None and (treebank := _base_of(probe.treebank)).exists():
        read_treebank(treebank)  # pretraining would find out after the stages before it


def _is_in(place: Path, path: str) -> bool:
    target = _base_of(path)
    return target == place or place in target.parents


def _require_existing(key: str, path: str) -> None:
    target = _base_of(path)
    if not target.exists() or holds_nothing(target):
        wrong = "is an empty folder" if target.exists() else "does not exist"
        raise ConfigError(
            f"{key} is {path}; {target} {wrong} (in {Path.cwd()}). Put your data there, or name the path where it is: "
            f"{key}=/path/to/it"
        )


def _named_paths(config: PipelineConfig) -> dict[Path, tuple[str, str]]:
    """Return key and path of the user's data by the place that it is linked from."""
    hub_or_path = {
        stages.USER_CHECKPOINT: ("pretrain.start_from", config.pretrain.start_from),
        stages.USER_PRETRAINING_TEACHER: ("objective.teacher", getattr(config.objective, "teacher", None)),
        **{
            stages.USER_START / name: (f"tasks.{name}.start_from", task.start_from)
            for name, task in config.tasks.items()
        },
    }
    if isinstance(config.tokenizer, ExistingTokenizerConfig | ExtendedTokenizerConfig):
        hub_or_path[stages.USER_VOCABULARY] = ("tokenizer.path", config.tokenizer.path)
    named = {place: (key, path) for place, (key, path) in hub_or_path.items() if path is not None and is_local(path)}
    for source, reader in readers_of(config.corpus).items():
        if reader.user_path is not None:
            place = stages.USER_SOURCES / source if source else stages.USER_TEXT
            named[place] = (f"{key_of(source)}.{reader.user_data}", reader.user_path)
    if config.pretrain.head_probe is not None:
        named[stages.USER_TREEBANK] = ("pretrain.head_probe.treebank", config.pretrain.head_probe.treebank)
    for name, task in config.tasks.items():
        path = getattr(task.source, "path", None)  # sources from packages or a hub have none
        if path is not None:
            named[stages.USER_TASKS / name] = (f"tasks.{name}.source.path", path)
        for place, key in ((stages.USER_TEACHER, "teacher"), (stages.USER_UNLABELLED, "unlabelled")):
            if (path := getattr(task, key)) is not None:
                named[place / name] = (f"tasks.{name}.{key}", path)
    return named


def is_local(name_or_path: str) -> bool:
    """Return whether a value is a path; a hub name such as `google-bert/bert-base-uncased` is not."""
    return Path(name_or_path).exists() or name_or_path.startswith((".", "/", "~", "data/"))


def _link(place: Path, path: str, key: str) -> None:
    target = _base_of(path)
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
    base = _base_of(path)
    return base.exists() and not holds_nothing(base)


def _base_of(path: str) -> Path:
    """Return the longest leading part of a path without wildcards: the folder that a glob searches."""
    whole = Path(path).expanduser()
    if whole.exists() or not glob.has_magic(path):  # brackets may also be part of a name
        return whole
    parts = whole.parts
    plain = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    return Path(*parts[:plain])
