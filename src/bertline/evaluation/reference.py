"""Reference curves: runs of presets that ship with bertline, drawn behind the user's own curves.

A reference is a small JSON file in `reference_curves/`, written by `bertline curve` from a finished run.
"""

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from bertline.evaluation.html import setting
from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.foundation.files import write_atomically
from bertline.foundation.manifests import MANIFEST_NAME, read_manifest
from bertline.foundation.metrics_log import MetricsRow, read_metrics
from bertline.pretraining.objectives import objective_from
from bertline.pretraining.objectives.base import Objective, shown_means

FORMAT_VERSION = 1
_FOLDER = "reference_curves"
_TRAIN_POINTS = 100
"""Maximum number of points of the training loss; each is the mean of the rows since the previous point."""
_ALIKE = ("corpus", "python_docs", "tokenizer", "examples", "objective", "model")
"""Sections that define data, objective and model; losses are comparable only if these sections are equal."""
_MAY_DIFFER = ("optimizer", "schedule", "pretrain")
_PRETRAIN_KEYS = ("seed", "max_steps", "precision", "start_from", "initial_embeddings")
"""Keys of the pretrain section that affect learning, besides the steps of its phases."""
_PUBLIC_CORPORA = ("python_docs", "hub")

Curve = list[tuple[float, float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceCurve:
    """Curves and settings of a finished run of a preset."""

    name: str
    device: str
    """Description of the device, such as `2 CPU cores`."""
    date: str
    """Date on which the run ended, as YYYY-MM-DD."""
    commit: str
    """Commit of the code that ran."""
    versions: dict[str, str]
    num_tokens: int
    """Number of real tokens of the whole run."""
    train_time_s: float
    unigram_entropy: float
    settings: dict[str, Any]
    """Sections of the configuration."""
    curves: dict[str, Curve]
    """Curves by metric; that of the training loss is smoothed."""

    @property
    def title(self) -> str:
        """Name in the legend."""
        return f"reference: {self.name}, {self.device}, {self.date}"

    def until(self, key: str, own: Sequence[tuple[float, float]]) -> Curve:
        """Return one metric up to the last step of the user's curve, which a longer reference would compress."""
        last = max((step for step, _ in own), default=-1.0)
        return [point for point in self.curves.get(key, []) if point[0] <= last]

    def differences(self, params: Mapping[str, Any]) -> list[str]:
        """Describe the settings of another run that differ and affect learning."""
        ours, theirs = (dict(_effective(settings)) for settings in (self.settings, params))
        shared = [key for key in sorted(ours.keys() & theirs.keys()) if theirs[key] != ours[key]]
        pairs = {key: ["null" if one is None else setting(one) for one in (theirs[key], ours[key])] for key in shared}
        return [f"{key} is {here} instead of {there}" for key, (here, there) in pairs.items()]


def reference_for(params: Mapping[str, Any]) -> ReferenceCurve | None:
    """Return the shipped reference that is comparable with a run of this configuration; None if there is none.

    Comparable runs have the same corpus, vocabulary, examples, objective and model, and phases with the same sequence
    lengths and global batch sizes. Optimizer, schedule, steps, seed and precision may differ: they are what is
    compared.
    """
    own = {name: _given(_plain(params[name])) for name in _ALIKE if name in params}
    for curve in read_references():
        theirs = {name: _given(curve.settings[name]) for name in _ALIKE}
        if own == theirs and _batches(curve.settings) == _batches(params):
            return curve
    return None


def read_references() -> list[ReferenceCurve]:
    """Return all references that ship with bertline, sorted by file name."""
    paths = sorted(files("bertline.evaluation").joinpath(_FOLDER).iterdir(), key=lambda path: path.name)
    return [parse_reference(path.read_text(encoding="utf-8"), path.name) for path in paths if path.name[-5:] == ".json"]


def parse_reference(text: str, where: str) -> ReferenceCurve:
    """Parse the text of a reference file.

    Raises:
        ArtifactError: The file has another format version.
    """
    content = json.loads(text)
    if content.pop("format_version", None) != FORMAT_VERSION:
        raise ArtifactError(f"{where} is not of format_version {FORMAT_VERSION}. Make it again: bertline curve")
    curves = {key: [(step, value) for step, value in points] for key, points in content.pop("curves").items()}
    return ReferenceCurve(**content, curves=curves)


def reference_of_run(folder: Path, *, name: str, device: str, commit: str) -> dict[str, Any]:
    """Return the reference of a finished pretraining, `runs/pretrain/FINGERPRINT`, as content for `write_reference`;
    `name` is that of the preset, `commit` that of the code that ran.

    Raises:
        ArtifactError: The run is not finished.
        ConfigError: The corpus is not public, so other users cannot have a comparable run.
    """
    import yaml

    if not (folder / "result" / MANIFEST_NAME).exists():
        raise ArtifactError(f"{folder} is not a finished pretraining. Name one that is: runs/pretrain/FINGERPRINT")
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))["config"]
    if config["corpus"]["kind"] not in _PUBLIC_CORPORA:
        raise ConfigError(
            f"{folder} was trained on corpus.kind={config['corpus']['kind']}, text that others do not have; a "
            f"reference needs one of {', '.join(_PUBLIC_CORPORA)}."
        )
    manifest = read_manifest(folder / "result", kind="pretrain", format_version=1)
    rows = list(read_metrics(folder / "metrics.jsonl"))
    figures = manifest["metrics"]
    return {
        "format_version": FORMAT_VERSION,
        "name": name,
        "device": device,
        "date": datetime.fromtimestamp(rows[-1].time_s, tz=UTC).date().isoformat(),
        "commit": commit,
        "versions": manifest["versions"],
        "num_tokens": int(figures["num_tokens"]),
        "train_time_s": round(figures["train_time_s"], 1),
        "unigram_entropy": round(figures["unigram_entropy"], 5),
        "settings": {section: config[section] for section in (*_ALIKE, *_MAY_DIFFER)},
        "curves": dict(_curves(rows, objective_from(config["objective"]))),
    }


def write_reference(path: Path, content: Mapping[str, Any]) -> None:
    """Write a reference with one line per key and metric, so that diffs between runs are short."""
    curves = ",\n".join(f"    {json.dumps(key)}: {json.dumps(points)}" for key, points in content["curves"].items())
    head = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items() if key != "curves"]
    body = ",\n".join([*head, f'  "curves": {{\n{curves}\n  }}'])
    write_atomically(path, f"{{\n{body}\n}}\n")


def smoothed(points: Sequence[tuple[float, float]], most: int) -> Curve:
    """Average consecutive points to at most `most` points, each at the last step that it covers.

    >>> smoothed([(20, 9.0), (40, 7.0), (60, 5.0)], 2)
    [(40, 8.0), (60, 5.0)]
    """
    size = max(1, math.ceil(len(points) / most))
    parts = [points[start : start + size] for start in range(0, len(points), size)]
    return [(part[-1][0], statistics.fmean(value for _, value in part)) for part in parts]


def _curves(rows: Sequence[MetricsRow], objective: Objective) -> Iterator[tuple[str, list[list[float]]]]:
    train, held_out = f"train/{objective.judged_by}", [f"val/{mean.name}" for mean in shown_means(objective)]
    probes = sorted({key for row in rows for key in row.metrics if key.startswith("probe/")})
    for key in (train, *held_out, *probes):
        points = [(row.step, row.metrics[key]) for row in rows if key in row.metrics]
        shown_points = smoothed(points, _TRAIN_POINTS) if key == train else points
        yield key, [[step, round(value, 5)] for step, value in shown_points]


def _batches(settings: Mapping[str, Any]) -> list[tuple[int, int]]:
    return [(phase["max_length"], phase["global_batch_size"]) for phase in settings["pretrain"]["phases"]]


def _effective(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for section in _MAY_DIFFER:
        for key, value in _plain(settings.get(section, {})).items():
            if section != "pretrain" or key in _PRETRAIN_KEYS:
                yield f"{section}.{key}", value
    yield "pretrain.phases.steps", [phase["steps"] for phase in settings["pretrain"]["phases"]]


def _given(section: Any) -> Any:
    """Return a section without null keys, which earlier references may lack, and bounds, which change no example."""
    if not isinstance(section, dict):
        return section
    return {key: value for key, value in section.items() if value is not None and key != "bounds"}


def _plain(value: Any) -> Any:
    """Return the value after a round trip through JSON, which turns tuples into lists."""
    return json.loads(json.dumps(value))
