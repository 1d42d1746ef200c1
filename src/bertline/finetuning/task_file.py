"""task.json of a fine-tuned model: task configuration, labels and calibration, needed to use it as it was scored."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertline.foundation.errors import ConfigError
from bertline.foundation.files import read_json, write_json
from bertline.foundation.formats import without_local_paths
from bertline.foundation.manifests import require_version
from bertline.foundation.validation import to_mapping, validate
from bertline.kinds.base import Calibration, TaskKind
from bertline.kinds.label_sets import LABEL_SETS, LabelSets
from bertline.kinds.registry import TaskConfig, task_kind

TASK_FILE = "task.json"
_FORMAT_VERSION = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class _TaskFile:
    """Content of the file, validated on reading."""

    format_version: int
    task: TaskConfig
    labels: tuple[str, ...]
    calibration: dict[str, float]


@dataclass(frozen=True, slots=True)
class FinishedTask:
    """Task of a fine-tuned model folder, with its calibration."""

    kind: TaskKind[Any, Any, Any]
    calibration: Calibration
    label_sets: LabelSets | None = None
    """None of other kinds than classification with one label a row."""


def write_task_file(
    folder: Path, kind: TaskKind[Any, Any, Any], calibration: Calibration, label_sets: LabelSets | None = None
) -> None:
    """Write task.json, without the local paths of the source and of the checkpoint that fine-tuning started from, and
    the label sets, if there are any."""
    task = to_mapping(kind.config)
    # Prompts and separators may look like paths, but the model's output depends on them.
    source = task["source"]
    files = [name for name in source if name == "extra_tests" or name.endswith(("_file", "_qrels"))]
    task["source"] = {
        **source,
        **{name: without_local_paths(source[name]) for name in files},
        **({"path": ""} if "path" in source else {}),
    }
    task |= {key: without_local_paths(task[key]) for key in ("start_from", "teacher", "unlabelled")}
    content = {"format_version": _FORMAT_VERSION, "task": task, "labels": list(kind.labels)}
    write_json(folder / TASK_FILE, {**content, "calibration": dict(calibration)})
    if label_sets is not None:
        write_json(folder / LABEL_SETS, asdict(label_sets))


def read_teacher(folder: Path) -> FinishedTask:
    """Read the task of a teacher's folder.

    Raises:
        ConfigError: The folder has no task.json, so it is not fine-tuned, or no encoder.
    """
    finished = read_task_file(folder)
    if finished is None:
        raise ConfigError(
            f"teacher is {folder}, which has no {TASK_FILE}: it is not fine-tuned, and knows nothing of the task. "
            f"Fine-tune it first, with the same rows: bertline finetune start_from={folder} data=... The last line "
            "names the folder to give as teacher (`encoder`)."
        )
    if not (folder / "config.json").is_file():
        raise ConfigError(f"teacher is {folder}, which has no encoder. Give the one beside it, {folder.name}-encoder.")
    return finished


def read_task_file(folder: Path) -> FinishedTask | None:
    """Read the task of a model folder; None if the folder has no task.json.

    Raises:
        ArtifactError: The file has another format version, or is damaged.
    """
    path = folder / TASK_FILE
    if not path.exists():
        return None
    content = read_json(path)
    require_version(path, content, _FORMAT_VERSION)
    checked = validate(_TaskFile, content, where=str(path))
    sets = LabelSets(**read_json(folder / LABEL_SETS)) if (folder / LABEL_SETS).is_file() else None
    return FinishedTask(task_kind(checked.task, checked.labels), checked.calibration, sets)
