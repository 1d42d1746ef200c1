"""The evaluate stage: one HTML report, curves for `dvc plots`, plots as files."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from bertline.evaluation.config import EvaluateConfig
from bertline.evaluation.data_section import data_charts, data_section
from bertline.evaluation.facts import Facts, read_facts, spread_of
from bertline.evaluation.folders import LineFolders
from bertline.evaluation.overview_section import line_picture, summary
from bertline.evaluation.parts import figure, folded, section, table
from bertline.evaluation.pretraining_section import pretraining_charts, pretraining_section
from bertline.evaluation.svg import chart_css, standalone
from bertline.evaluation.tables import write_tables
from bertline.evaluation.task_section import task_charts, task_section
from bertline.evaluation.vector_space import vector_space_chart
from bertline.evaluation.wording import escape
from bertline.foundation.files import folder_written_atomically, write_atomically
from bertline.foundation.manifests import write_manifest

FORMAT_VERSION = 1
_MARGIN_KEY = "below_unigram_entropy"


def build_evaluation(config: EvaluateConfig, line: LineFolders, out: Path) -> dict[str, float | int]:
    """Write `report.html`, `curves/`, `confusion/` and `plots/`; the same artifacts give the same bytes.

    Returns:
        The line's headline figures: pretraining, and each task's score with its baselines and spread.

    Raises:
        ArtifactError: A stage before this one has not been run.
    """
    facts = read_facts(line, config.title)
    charts = {**pretraining_charts(facts), **data_charts(facts)}
    for task in facts.tasks:
        charts.update(task_charts(task))
    vectors = _vectors(facts, line, config.embed_plot_points)
    charts.update(vectors)
    headline = headline_figures(facts)
    with folder_written_atomically(out) as folder:
        write_atomically(folder / "report.html", _page(facts, line, charts, vectors, config))
        for name, chart in charts.items():
            write_atomically(folder / "plots" / f"{name}.svg", standalone(chart))
        write_tables(facts, line, folder)
        content = {"figures": headline, "plots": sorted(charts)}
        write_manifest(folder, kind="evaluate", format_version=FORMAT_VERSION, content=content)
    return headline


def headline_figures(facts: Facts) -> dict[str, float | int]:
    """Pretraining's figures, and for each task the score, its spread, and every baseline."""
    training = facts.training
    figures: dict[str, float | int] = {
        "val/mlm_loss": training["val/mlm_loss"],
        "val/mlm_accuracy": training["val/mlm_accuracy"],
        "val/nsp_accuracy": training["val/nsp_accuracy"],
        "unigram_entropy": training["unigram_entropy"],
        _MARGIN_KEY: training["unigram_entropy"] - training["val/mlm_loss"],
    }
    for task in facts.tasks:
        metric, result = task.result["metric"], task.result
        for arm, content in result["arms"].items():
            if content:
                figures[f"{task.name}/{arm}/{metric}_mean"] = content["test_mean"]
                spread = spread_of(content, "test")
                figures |= {} if spread is None else {f"{task.name}/{arm}/{metric}_std": spread}
        for baseline, content in result["baselines"].items():
            figures[f"{task.name}/{baseline}/{metric}"] = content["test"]
        if result.get("comparison"):
            figures[f"{task.name}/beats_random_weights"] = int(result["comparison"]["beats_random_weights"])
    return figures


def _vectors(facts: Facts, line: LineFolders, num_points: int) -> dict[str, str]:
    found = {}
    for task in facts.tasks:
        chart = vector_space_chart(task, line, num_points=num_points)
        if chart is not None:
            found[f"{task.name}_vectors"] = chart
    return found


def _page(
    facts: Facts, line: LineFolders, charts: dict[str, str], vectors: dict[str, str], config: EvaluateConfig
) -> str:
    sections = [
        line_picture(facts),
        pretraining_section(facts, charts),
        *(task_section(task, charts) for task in facts.tasks),
        _vector_section(vectors),
        data_section(facts, line, charts, config.num_documents),
        _configuration(facts.params),
    ]
    folder = files("bertline.evaluation")
    return Template(folder.joinpath("report.html").read_text(encoding="utf-8")).substitute(
        title=escape(facts.title),
        style=folder.joinpath("report.css").read_text(encoding="utf-8") + chart_css(),
        summary=summary(facts),
        sections="\n".join(sections),
    )


def _vector_section(vectors: dict[str, str]) -> str:
    if not vectors:
        return ""
    caption = "Test passages as the pretrained encoder sees them before any fine-tuning (mean over tokens, first two "
    caption += "principal components), coloured by a label it was never shown."
    return section("vectors", "The space it made", *(figure(chart, caption) for chart in vectors.values()))


def _configuration(params: dict[str, Any]) -> str:
    blocks = []
    for name, content in params.items():
        rows = [[key, json.dumps(value, ensure_ascii=False)] for key, value in _flat(content)]
        blocks.append(folded(name, table(["key", "value"], rows)))
    return section("configuration", "The configuration", *blocks)


def _flat(content: Any, key: str = "") -> list[tuple[str, Any]]:
    if not isinstance(content, dict):
        return [(key, content)]
    return [pair for name, value in content.items() for pair in _flat(value, f"{key}.{name}" if key else name)]
