"""What the figures of the report show: pretraining against its baselines, each task's scores, trials and vectors."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity

from bertline.encoders.loading import load_encoder
from bertline.encoding.sequences import encode_texts, outputs_of
from bertline.evaluation.facts import Facts, PipelineFolders, TaskFacts
from bertline.evaluation.figures import Chart, ScoreRow, Series, bar_chart, dot_chart, line_chart, small_multiples
from bertline.evaluation.html import metric_name, words
from bertline.foundation.formats import percent
from bertline.modeling.heads import BertTextEncoder
from bertline.tasks.stored_rows import TextRows, read_rows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine, Ranks


@dataclass(frozen=True, slots=True)
class Captioned:
    """A chart, the name of its file, and what stands below it."""

    name: str
    chart: Chart
    caption: str


def dropped_charts(facts: Facts) -> list[Captioned]:
    """Return a chart of what was left out of the corpus by reason, for each unit: documents and paragraphs do not
    compare."""
    reasons: dict[str, list[tuple[str, float]]] = {}
    for reason, number in facts.corpus.get("dropped", {}).items():
        unit, _, name = reason.rpartition("/")
        if number:
            reasons.setdefault(unit or "documents", []).append((words(name), float(number)))
    return [
        Captioned(
            f"dropped_{unit}",
            bar_chart(sorted(rows, key=lambda row: (-row[1], row[0]))[:12], name=f"{unit} left out"),
            f"{unit.capitalize()} left out of the corpus, by reason.",
        )
        for unit, rows in sorted(reasons.items())
    ]


_OPTIMIZATION = {
    "learning_rate": ("optim/lr", "learning rate", "The learning rate of the schedule: warm-up, then decay."),
    "grad_norm": ("optim/grad_norm", "gradient norm", "The norm of the gradient before it is clipped."),
    "throughput": ("perf/tokens_per_s", "tokens per second", "Real tokens per second of training, without padding."),
}
_PROBES = (
    "What a linear classifier reads off the encoder's frozen vectors of held-out sentences that it was not fitted on: "
    "whether two neighbouring words were swapped, whether a word was replaced by another as frequent. The first point "
    "is the encoder before training."
)

_HEAD_NAMES = {"mean": "mean of all", "offset": "mean, fixed distances", "obj": "obj", "nsubj": "nsubj", "det": "det"}
_HEADS = {f"probe/heads/{name}": (title, f"c{number}") for number, (name, title) in enumerate(_HEAD_NAMES.items())}
_HEADS_CAPTION = (
    "How often the strongest attention of the best attention head is between a word and its syntactic head, on "
    "sentences that did not choose it: over all relations, next to the same mean of the best fixed distances, and for "
    "some relations, which have other fixed distances each."
)


def pretraining_charts(facts: Facts) -> list[Captioned]:
    """Return the charts of pretraining; curves that were not recorded have no chart."""
    objective, clip = facts.objective, facts.params.get("optimizer", {}).get("max_grad_norm")
    by_chart: dict[str, list[Any]] = {}
    for metric in objective.metrics:
        by_chart.setdefault(metric.chart, []).append(metric)
    drawn: list[tuple[str, str, Mapping[str, tuple[str, str]], tuple[str, float] | None, str]] = []
    for term in objective.terms:
        curves = {f"train/{term.name}": ("training", "c1"), f"val/{term.name}": ("held-out", "c0")}
        level = (term.baseline, facts.baselines[term.name]) if term.baseline else None
        if term.title:
            drawn.append((term.name, term.title, curves, level, term.caption))
    for name, metrics in by_chart.items():
        curves = {f"val/{metric.name}": (metric.title, f"c{index}") for index, metric in enumerate(metrics)}
        levels = [(f"{one.baseline}, {one.title}", facts.baselines[one.name]) for one in metrics if one.baseline]
        caption = f"The share of {', and of '.join(metric.share_of for metric in metrics if metric.share_of)}."
        drawn.append((name, "held-out accuracy", curves, next(iter(levels), None), caption))
    probes = {
        "probe/bigram_shift_accuracy": ("two words swapped?", "c0"),
        "probe/odd_word_accuracy": ("one word replaced?", "c1"),
    }
    drawn += [
        ("probes", "accuracy of a linear probe", probes, ("chance", 0.5), _PROBES),
        ("heads", "syntactic heads that an attention head finds", _HEADS, None, _HEADS_CAPTION),
    ]
    for name, (key, title, caption) in _OPTIMIZATION.items():
        level = ("clipped above", clip) if name == "grad_norm" and clip is not None else None
        drawn.append((name, title, {key: (title, "c0")}, level, caption))
    charts, marks = [], facts.length_changes()
    for name, y_name, of_chart, level, caption in drawn:
        series = [
            Series(title, points, colour, style="marked" if key.startswith(("val/", "probe/")) else "line")
            for key, (title, colour) in of_chart.items()
            if (points := facts.curve(key))
        ]
        if series:
            chart = line_chart(series, x_name="step", y_name=y_name, level=level, marks=marks)
            charts.append(Captioned(name, chart, caption))
    return charts


TaskCharts = dict[str, list[Captioned]]
"""The charts of a task by what they show: `scores`, `trials` or `vectors`."""


_ARM_COLOURS = {
    "encoder": "c0", "combined": "c5", "without_teacher": "c9", "random_weights": "c1", "encoder_2": "c4",
}  # fmt: skip
_BASELINE_COLOURS = ("c2", "c6", "c7", "c8", "c9", "c5")
_SCORES = (
    "Thick bars are one standard deviation over seeds, small dots the seeds; thin brackets are 95 % intervals over "
    "seeds and test rows."
)


def task_charts(task: TaskFacts, pipeline: PipelineFolders | None = None, *, num_points: int = 0) -> TaskCharts:
    """Return the charts of a task; those of its vectors need the folders of the pipeline."""
    name, metric = task.name, metric_name(task.metric)
    scores = [Captioned(f"{name}_scores", _scores(task), f"Test {metric}. {_SCORES}")]
    if task.result.get("label_efficiency"):
        chart, caption = _label_efficiency(task), f"Test {metric} by number of labelled rows."
        scores.append(Captioned(f"{name}_label_efficiency", chart, caption))
    if task.distillation:
        caption = f"What the student costs and is worth, compared with its teacher ({task.distillation['machine']})."
        scores.append(Captioned(f"{name}_distillation", _distillation(task), caption))
    trials = [
        Captioned(f"{name}_trials_{each}", _trials(task, each), f"Dev {metric} of every trial by {words(each)}.")
        for each in varied(task)
    ]
    space = None if pipeline is None else vector_space(task, pipeline, num_points=num_points)
    return {"scores": scores, "trials": trials, "vectors": [space] if space else []}


def varied(task: TaskFacts) -> list[str]:
    """Return the numeric hyperparameters with more than one value in the trials."""
    trials = [trial for arm in task.arms().values() for trial in arm["trials"] if trial["dev"] is not None]
    names = sorted({name for trial in trials for name in trial["params"]})
    values = {name: {trial["params"].get(name) for trial in trials} for name in names}
    return [name for name, found in values.items() if len(found) > 1 and {*map(type, found)} <= {int, float}]


def _colours(task: TaskFacts) -> dict[str, str]:
    others = [name for name in task.systems() if name not in (*_ARM_COLOURS, "majority")]
    cycle = {name: _BASELINE_COLOURS[place % len(_BASELINE_COLOURS)] for place, name in enumerate(others)}
    return {**_ARM_COLOURS, **cycle, "majority": "c3"}


def _scores(task: TaskFacts) -> Chart:
    colours, titles, rows = _colours(task), task.titles(), []
    for name, one in task.systems().items():  # an arm has seeds, a baseline one score
        mean = one["test_mean" if "seeds" in one else "test"]
        seeds = [seed["test"] for seed in one.get("seeds", ())]
        rows.append(ScoreRow(titles[name], mean, colours[name], one.get("test_std"), seeds, one["test_interval"]))
    return dot_chart(rows, x_name=f"test {metric_name(task.metric)}")


def _label_efficiency(task: TaskFacts) -> Chart:
    colours, titles, series = _colours(task), task.titles(), []
    by_rows = sorted(task.result["label_efficiency"], key=lambda row: row["rows"])
    for name, title in titles.items():
        own = [row for row in by_rows if row["arm"] == name]
        points = [(float(row["rows"]), row["test_mean"]) for row in own]
        spread = [row["test_std"] or 0.0 for row in own]
        series.append(Series(title, points, colours[name], spread, "marked"))
    flat = [name for name in task.result["baselines"] if name not in {row["arm"] for row in by_rows}]
    shown = "majority" if "majority" in flat else next(iter(flat), None)
    level = None if shown is None else (titles[shown], task.result["baselines"][shown]["test"])
    return line_chart(
        series, x_name="labelled rows", y_name=f"test {metric_name(task.metric)}", level=level, log_x=True
    )


def _distillation(task: TaskFacts) -> Chart:
    series = [
        Series(words(row["name"]), [(row["ms_32"], row["score"])], colour, [row["spread"] or 0.0], "marked")
        for row, colour in zip(task.distillation["rows"], ("c4", "c0", "c9", "c5"), strict=False)
    ]
    costs = f"milliseconds for 32 rows of {task.distillation['max_length']} tokens"
    return line_chart(series, x_name=costs, y_name=f"test {metric_name(task.metric)}")


def _trials(task: TaskFacts, parameter: str) -> Chart:
    colours, titles, series = _colours(task), task.titles(), []
    for name, arm in task.arms().items():
        trials = [trial for trial in arm["trials"] if trial["dev"] is not None and parameter in trial["params"]]
        points = [(float(trial["params"][parameter]), trial["dev"]) for trial in trials]
        series.append(Series(titles[name], points, colours[name], style="dots"))
    values = [x for one in series for x, _ in one.points]
    searched = task.space.get(parameter, {}).get("kind")
    log_x = min(values) > 0 and (searched == "log_uniform" or max(values) / min(values) >= 8)
    return line_chart(series, x_name=words(parameter), y_name=f"dev {metric_name(task.metric)}", log_x=log_x)


_MOST_LABELS = 16


def vector_space(task: TaskFacts, pipeline: PipelineFolders, *, num_points: int) -> Captioned | None:
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
    if agreeing <= chance + 2 * (chance * (1 - chance) / len(rows)) ** 0.5:
        return None
    components = PCA(2, svd_solver="full").fit(vectors.astype(np.float64))
    places = components.transform(vectors)
    groups = [(label, places[rows.labels == number].tolist()) for number, label in enumerate(labels)]
    first, second = (
        f"{name} direction, {percent(share)} of the variance"
        for name, share in zip(("first", "second"), components.explained_variance_ratio_, strict=True)
    )
    caption = (
        f"{len(rows):,} test passages of {task.name} as the encoder sees them before any fine-tuning (mean over "
        "tokens, first two principal components): each panel shows one label, which the encoder was never shown, in "
        f"front of all others. In all dimensions, the nearest other passage has the same label in {percent(agreeing)} "
        f"of cases; by chance it would be {percent(chance)}."
    )
    return Captioned(f"{task.name}_vectors", small_multiples(groups, x_name=first, y_name=second), caption)


def neighbours_agree(vectors: NDArray[np.float32], labels: NDArray[np.int64]) -> tuple[float, float]:
    """Return how often the nearest other row (cosine, around the mean) has the same label, and how often by chance."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0)
    similarity = cosine_similarity(centred)
    np.fill_diagonal(similarity, -np.inf)
    sizes = np.bincount(labels)
    chance = (sizes * (sizes - 1)).sum() / (len(labels) * (len(labels) - 1))
    return float((labels[similarity.argmax(axis=1)] == labels).mean()), float(chance)


def mean_vectors(model_folder: Path, texts: list[str], *, max_length: int) -> NDArray[np.float32]:
    """Return the mean of each text's last hidden states over its tokens, [N, hidden_size]."""
    encoder = load_encoder(model_folder)
    max_length = min(max_length, encoder.config.max_position_embeddings)  # the task may start from another encoder
    sequences = encode_texts(texts, None, Tokenizer.load(model_folder), max_length=max_length)
    machine = Machine(device=torch.device("cpu"), precision="fp32", compile=False, ranks=Ranks())
    return outputs_of(BertTextEncoder(encoder, pooling="mean"), sequences, machine, encoder.config.hidden_size)
