"""At most five figures of a stage, under the same names for all stages: what DVC shows as metrics.

`dvc metrics show` gives each name a column, so a name that only one stage has makes every line longer. All figures are
in `artifacts/metrics`. No stage and no lock refers to these files: `seconds` differs with each run and re-runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from bertline.foundation.files import read_json, write_json

NAMES = ("score", "baseline", "loss", "rows", "seconds")


def headline(stage: str, metrics: Mapping[str, float], *, seconds: float) -> dict[str, float]:
    """Return the figures that a person compares first; those that a stage does not have are left out.

    Args:
        stage: Name of the stage, without its task.
        metrics: All figures of the stage.
        seconds: How long the stage took.

    Returns:
        `score` (of pretraining the accuracy of masked tokens, of a sweep the test score, of `evaluate` the mean of
        those), `baseline` (of pretraining the unigram entropy, with which its loss is compared; of a sweep the test
        score of the strongest simple opponent), `loss` (of masked tokens, on held-out text), `rows` (documents, tokens
        of the vocabulary, examples or labelled rows to train on; models exported) and `seconds`.
    """
    found: dict[str, float | None]
    match stage:
        case "corpus":
            found = {"rows": metrics.get("train/documents")}
        case "tokenizer":
            found = {"rows": metrics.get("vocab_size")}
        case "examples":
            found = {"rows": _sum(_matching(metrics, r"length_\d+/train_examples"))}
        case "task_data":
            found = {"rows": metrics.get("train_rows")}
        case "pretrain":
            found = {**_of_pretraining(metrics), "baseline": metrics.get("unigram_entropy")}
        case "sweep":
            score = next(iter(_matching(metrics, r"test/.+_mean")), None)
            difference = metrics.get("encoder/difference_from_strongest")
            found = {
                "score": score,
                "baseline": None if score is None or difference is None else score - difference,
            }
        case "evaluate":
            scores = _matching(metrics, r"[^/]+/encoder/.+_mean")
            found = {**_of_pretraining(metrics), "score": sum(scores) / len(scores) if scores else None}
        case _:
            found = {"rows": _sum([1 for _ in _matching(metrics, r"[^/]+/bytes")])}
    told = {**found, "seconds": round(seconds, 1)}
    return {name: told[name] for name in NAMES if told.get(name) is not None}  # type: ignore[misc]


def write_headline(path: Path, stage: str, metrics: Mapping[str, float], *, seconds: float, kept: Path) -> None:
    """Write a stage's headline figures.

    Args:
        path: The file for DVC.
        stage: Name of the stage, without its task.
        metrics: All figures of the stage.
        seconds: How long this command took.
        kept: The same file in the run folder. Where a result is taken from there, its longer time is that of the work.
    """
    before = read_json(kept).get("seconds", 0.0) if kept.exists() else 0.0
    figures = headline(stage, metrics, seconds=max(before, seconds))
    for target in (kept, path):
        write_json(target, figures)


def _of_pretraining(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {"score": metrics.get("val/mlm_accuracy"), "loss": metrics.get("val/mlm_loss")}


def _matching(metrics: Mapping[str, float], pattern: str) -> list[float]:
    return [value for key, value in metrics.items() if re.fullmatch(pattern, key)]


def _sum(values: list[float]) -> float | None:
    return sum(values) if values else None
