"""What MLflow shows of a run besides curves: its name, the note on its page, its source, and the metrics it charts."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertline.evaluation.facts import read_result
from bertline.evaluation.html import metric_name
from bertline.foundation.formats import count
from bertline.orchestration.config import PipelineConfig
from bertline.orchestration.provenance import git_commit, running_under_dvc
from bertline.orchestration.stages import Stage
from bertline.tracking.values import NOTE_TAG

NAME = "mlflow.runName"
# What a person compares pipelines by; `config.yaml` among the artifacts has the rest.
_HEADLINE_PARAMS = (
    "corpus.kind",
    "tokenizer.vocab_size",
    "model.num_hidden_layers",
    "model.hidden_size",
    "objective.kind",
    "optimizer.kind",
    "optimizer.lr",
    "pretrain.start_from",
    "pretrain.seed",
)
_OTHER_FIGURES = 30
"""Most figures of a stage that its note lists; `figures.json` among the artifacts has all."""


def source_tags(recipe: str) -> dict[str, str]:
    """Return the tags that MLflow shows as source, user and commit.

    Args:
        recipe: Path of the recipe, such as `pipelines/pretrain.py`.
    """
    tags = {
        "mlflow.source.name": "dvc.yaml" if running_under_dvc() else recipe,
        "mlflow.source.type": "PROJECT" if running_under_dvc() else "LOCAL",
    }
    commit = git_commit().partition("+")[0]
    if commit != "none":
        tags["mlflow.source.git.commit"] = commit
    with suppress(OSError, KeyError):  # an account without a name, as in some containers
        tags["mlflow.user"] = getpass.getuser()
    return tags


def headline_params(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the pipeline's run by dotted key, those of its configuration that it has."""
    found = {}
    for key in _HEADLINE_PARAMS:
        section, name = key.split(".")
        if (value := config[section].get(name)) is not None:
            found[key] = value
    return found


def charted(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the scores, losses and rates among a stage's figures: counts and constants make no chart.

    Example:
        >>> charted({"val/mlm_loss": 3.6, "train/documents": 202, "unigram_entropy": 6.5})
        {'val/mlm_loss': 3.6}
    """
    return {key: value for key, value in metrics.items() if "/" in key and isinstance(value, float)}


def stage_page(
    config: PipelineConfig, stage: Stage, name: str, metrics: Mapping[str, float], output: Path
) -> dict[str, str]:
    """Return name and note of a finished stage's run.

    Args:
        config: The whole configuration.
        stage: The stage.
        name: Its name with its task, such as `sweep@docs_library`.
        metrics: Its headline figures.
        output: Folder of its result.
    """
    blocks = [f"{stage.summary} Result: `{output.as_posix()}`."]
    title = name
    if stage.name == "sweep":
        result = read_result(output / "result.json")
        title = f"{name}: {metric_name(result['metric'])} {result['arms']['encoder']['test_mean']:.3f}"
        blocks += [result["conclusion"]["sentence"], _arms(result)]
    else:
        if stage.name == "pretrain":
            title = ": ".join([name, *_loss(config, metrics)])
        shown = sorted(metrics.items(), key=lambda item: item[0] not in charted(metrics))[:_OTHER_FIGURES]
        blocks.append(_table(["figure", "value"], [(f"`{key}`", _number(value)) for key, value in shown]))
    return {NAME: title, NOTE_TAG: "\n\n".join(blocks)}


def pipeline_name(config: PipelineConfig) -> str:
    """Return what a pipeline is called: its preset, or the title of its report."""
    return config.evaluate.title if config.evaluate.preset == "none" else config.evaluate.preset


def pipeline_page(
    config: PipelineConfig, metrics: Mapping[str, float], sweeps: Mapping[str, Path], report: Path
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the headline metrics of the pipeline's run, and its name and note.

    Args:
        config: The whole configuration.
        metrics: Figures of the stage `evaluate`.
        sweeps: Folders of the sweeps by task.
        report: The report.
    """
    results = {task: read_result(folder / "result.json") for task, folder in sweeps.items()}
    of_objective = [f"val/{score.metric}" for score in config.objective.showing.scores]
    headline = {key: metrics[key] for key in of_objective if key in metrics}
    rows, sentences = [], []
    for task, result in results.items():
        arm, metric = result["arms"]["encoder"], result["metric"]
        headline[f"{task}/{metric}"] = arm["test_mean"]
        opponent = result["baselines"].get(result["conclusion"]["opponent"])
        strongest = f"{opponent['test']:.3f} ({opponent['title']})" if opponent else "–"
        rows.append((task, metric_name(metric), _with_std(arm), strongest))
        sentences.append(f"- **{task}**: {result['conclusion']['sentence']}")
    scores = _loss(config, metrics)
    if not scores:  # a checkpoint was fine-tuned
        scores = [f"{task} {result['arms']['encoder']['test_mean']:.3f}" for task, result in results.items()]
    note = [
        f"Report: `{report.as_posix()}`, and `report.html` among the artifacts below; `config.yaml` there is the whole "
        f"configuration. Commit {git_commit()[:10]}.",
    ]
    if rows:
        note += ["\n".join(sentences), _table(["task", "metric", "encoder", "strongest simple opponent"], rows)]
    return headline, {NAME: ": ".join([pipeline_name(config), *scores[:1]]), NOTE_TAG: "\n\n".join(note)}


def _loss(config: PipelineConfig, metrics: Mapping[str, float]) -> list[str]:
    """Return `["MLM 3.64"]`; empty where nothing was pretrained or validated."""
    name = config.objective.judged_by
    loss = metrics.get(f"val/{name}")
    return [] if loss is None else [f"{name.removesuffix('_loss').upper()} {loss:.2f}"]


def _arms(result: Mapping[str, Any]) -> str:
    found = [(_title(one), _with_std(one), one["test_mean"]) for one in result["arms"].values() if one]
    found += [(_title(one), f"{one['test']:.3f}", one["test"]) for one in result["baselines"].values()]
    best_first = sorted(found, key=lambda row: -row[2])
    return _table(["model", f"test {metric_name(result['metric'])}"], [row[:2] for row in best_first])


def _title(one: Mapping[str, Any]) -> str:
    return str(one["title"]).replace("|", "\\|")


def _with_std(arm: Mapping[str, Any]) -> str:
    spread = f" ± {arm['test_std']:.3f} over {len(arm['seeds'])} seeds" if len(arm["seeds"]) > 1 else ""
    return f"{arm['test_mean']:.3f}{spread}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: float) -> str:
    return count(value) if isinstance(value, int) or abs(value) >= 1000 else f"{value:.4g}"
