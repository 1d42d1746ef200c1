"""Charts of a task: scores of all systems, by training size, trials by hyperparameter, and its vector space."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertline.encoders.loading import load_encoder
from bertline.evaluation.charts import Row, Series, dot_chart, line_chart, scatter_chart, small_multiples
from bertline.evaluation.facts import PipelineFolders, TaskFacts
from bertline.evaluation.html import metric_name
from bertline.foundation.formats import percent
from bertline.tasks.stored_rows import TextRows, read_rows
from bertline.tokenization.tokenizer import Tokenizer

_ARM_COLOURS = {
    "encoder": "c0", "combined": "c5", "without_teacher": "c9", "random_weights": "c1", "encoder_2": "c4",
}  # fmt: skip
_BASELINE_COLOURS = ("c2", "c6", "c7", "c8", "c9", "c5")
_MAJORITY_COLOUR = "c3"


def task_charts(task: TaskFacts) -> dict[str, str]:
    """Return the charts by file name; each name begins with the task's name."""
    charts = {f"{task.name}_scores": _scores(task)}
    if task.result.get("label_efficiency"):
        charts[f"{task.name}_label_efficiency"] = _label_efficiency(task)
    if task.distillation:
        series = [
            Series(
                row["name"].replace("_", " "), [(row["ms_32"], row["score"])], css, [row["spread"] or 0.0], marked=True
            )
            for row, css in zip(task.distillation["rows"], ("c4", "c0", "c9", "c5"), strict=False)
        ]
        costs = f"milliseconds for 32 rows of {task.distillation['max_length']} tokens"
        worth = f"test {metric_name(task.metric)}"
        charts[f"{task.name}_distillation"] = line_chart(series, x_name=costs, y_name=worth)
    for parameter in varied(task):
        charts[f"{task.name}_trials_{parameter}"] = _trials(task, parameter)
    return charts


def varied(task: TaskFacts) -> list[str]:
    """Return the numeric hyperparameters with more than one value in the trials."""
    trials = [trial for arm in task.arms().values() for trial in arm["trials"] if trial["dev"] is not None]
    names = sorted({name for trial in trials for name in trial["params"]})
    values = {name: {trial["params"].get(name) for trial in trials} for name in names}
    return [name for name, found in values.items() if len(found) > 1 and all(map(_is_number, found))]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def colours(task: TaskFacts) -> dict[str, str]:
    """Return a class of `chart.css` for every encoder and baseline."""
    others = [name for name in task.systems() if name not in (*_ARM_COLOURS, "majority")]
    cycle = {name: _BASELINE_COLOURS[place % len(_BASELINE_COLOURS)] for place, name in enumerate(others)}
    return {**_ARM_COLOURS, **cycle, "majority": _MAJORITY_COLOUR}


def _scores(task: TaskFacts) -> str:
    colour, titles, rows = colours(task), task.titles(), []
    for name, one in task.systems().items():  # an arm has seeds, a baseline one score
        mean = one["test_mean" if "seeds" in one else "test"]
        seeds = [seed["test"] for seed in one.get("seeds", ())]
        rows.append(Row(titles[name], mean, colour[name], one.get("test_std"), seeds, one["test_interval"]))
    return dot_chart(rows, x_name=f"test {metric_name(task.metric)}")


def _label_efficiency(task: TaskFacts) -> str:
    colour, titles, series = colours(task), task.titles(), []
    of_name: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(task.result["label_efficiency"], key=lambda row: row["rows"]):
        of_name.setdefault(row["arm"], []).append(row)
    for name in [name for name in titles if name in of_name]:
        points = [(float(row["rows"]), row["test_mean"]) for row in of_name[name]]
        spread = [row["test_std"] or 0.0 for row in of_name[name]]
        series.append(Series(titles[name], points, colour[name], spread, marked=True))
    flat = [name for name in task.result["baselines"] if name not in of_name]
    level = "majority" if "majority" in flat else next(iter(flat), None)
    return line_chart(
        series,
        x_name="labelled rows",
        y_name=f"test {metric_name(task.metric)}",
        level=None if level is None else (titles[level], task.result["baselines"][level]["test"]),
        log_x=True,
    )


def _trials(task: TaskFacts, parameter: str) -> str:
    colour, titles, groups = colours(task), task.titles(), []
    for name, arm in task.arms().items():
        trials = [trial for trial in arm["trials"] if trial["dev"] is not None and parameter in trial["params"]]
        points = [(float(trial["params"][parameter]), trial["dev"]) for trial in trials]
        groups.append((titles[name], colour[name], points))
    values = [x for _, _, points in groups for x, _ in points]
    searched = task.space.get(parameter, {}).get("kind")
    log_x = min(values) > 0 and (searched == "log_uniform" or max(values) / min(values) >= 8)
    name = parameter.replace("_", " ")
    return scatter_chart(groups, x_name=name, y_name=f"dev {metric_name(task.metric)}", log_x=log_x)


_BATCH_SIZE = 32
_MOST_LABELS = 16


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """Picture of the passages of a task, and what it shows."""

    chart: str
    caption: str


def vector_space(task: TaskFacts, pipeline: PipelineFolders, *, num_points: int) -> VectorSpace | None:
    """Plot test passages of a task by label.

    Returns:
        None unless the task has single passages with one of a few labels each, and also if neighbours share a label no
        more often than by chance: the picture would then show nothing.
    """
    labels, config = task.result["labels"], pipeline.params["tasks"][task.name]
    if task.result["task_kind"] != "classification" or config.get("multi_label") or len(labels) > _MOST_LABELS:
        return None
    rows = read_rows(pipeline.tasks[task.name], "test", TextRows).first(num_points)
    if rows.text_pairs is not None or len(rows) < 3:
        return None
    vectors = mean_vectors(pipeline.pretrain, rows.texts, max_length=config["max_length"])
    agreeing, chance = neighbours_agree(vectors, rows.labels)
    if agreeing <= chance + 2 * math.sqrt(chance * (1 - chance) / len(rows)):
        return None
    places, shares = principal_components(vectors)
    groups = [
        (label, [(float(x), float(y)) for x, y in places[rows.labels == number]]) for number, label in enumerate(labels)
    ]
    first, second = (
        f"{name} direction, {percent(share)} of the variance"
        for name, share in zip(("first", "second"), shares, strict=True)
    )
    caption = (
        f"{len(rows):,} test passages of {task.name} as the encoder sees them before any fine-tuning (mean over "
        "tokens, first two principal components): each panel shows one label, which the encoder was never shown, in "
        f"front of all others. In all dimensions, the nearest other passage has the same label in {percent(agreeing)} "
        f"of cases; by chance it would be {percent(chance)}."
    )
    return VectorSpace(small_multiples(groups, x_name=first, y_name=second), caption)


def neighbours_agree(vectors: NDArray[np.float32], labels: NDArray[np.int64]) -> tuple[float, float]:
    """Return how often the nearest other row (cosine, around the mean) has the same label, and how often by chance."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0)
    unit = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    similarity = unit @ unit.T
    np.fill_diagonal(similarity, -np.inf)
    sizes = np.bincount(labels)
    chance = (sizes * (sizes - 1)).sum() / (len(labels) * (len(labels) - 1))
    return float((labels[similarity.argmax(axis=1)] == labels).mean()), float(chance)


def mean_vectors(model_folder: Path, texts: list[str], *, max_length: int) -> NDArray[np.float32]:
    """Return the mean of each text's last hidden states over its tokens, [N, hidden_size]."""
    tokenizer = Tokenizer.load(model_folder)
    encoder = load_encoder(model_folder).eval()
    max_length = min(max_length, encoder.config.max_position_embeddings)  # the task may start from another encoder
    encoded = [ids[: max_length - tokenizer.single.num_special] for ids in tokenizer.encode_batch(texts)]
    # Texts of similar length share a batch to reduce padding.
    order = sorted(range(len(texts)), key=lambda index: len(encoded[index]))
    vectors = torch.empty(len(texts), encoder.config.hidden_size)
    with torch.inference_mode():
        for start in range(0, len(texts), _BATCH_SIZE):
            batch = order[start : start + _BATCH_SIZE]
            sequences = [torch.tensor(tokenizer.single.sequence(encoded[index])) for index in batch]
            input_ids = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=tokenizer.pad_id)
            attention_mask = (input_ids != tokenizer.pad_id).long()
            states = encoder(input_ids, torch.zeros_like(input_ids), attention_mask).hidden_states
            weights = attention_mask.unsqueeze(-1).float()
            vectors[batch] = (states * weights).sum(1) / weights.sum(1)
    return vectors.numpy()


def principal_components(vectors: NDArray[np.float32]) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Return the first two principal components of each row, [N, 2], and their explained variance ratios.

    The sign of a component is arbitrary; its largest weight is made positive, so that the plot is deterministic.
    """
    centred = vectors.astype(np.float64) - vectors.mean(axis=0)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    directions = directions[:2]
    directions *= np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)])[:, None]
    shares = sizes**2 / max(float((sizes**2).sum()), 1e-12)
    return centred @ directions.T, (float(shares[0]), float(shares[1]))
