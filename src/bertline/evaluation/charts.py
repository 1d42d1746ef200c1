"""What the figures of the report show: pretraining against its baselines, each task's scores and trials."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bertline.evaluation.facts import Facts, TaskFacts
from bertline.evaluation.figures import Chart, ScoreRow, Series, dot_chart, line_chart
from bertline.evaluation.html import metric_name, words


@dataclass(frozen=True, slots=True)
class Captioned:
    """A chart, the name of its file, and what stands below it."""

    name: str
    chart: Chart
    caption: str


_OPTIMIZATION = {
    "learning_rate": ("optim/lr", "learning rate", "The learning rate of the schedule: warm-up, then decay."),
    "grad_norm": ("optim/grad_norm", "gradient norm", "The norm of the gradient before it is clipped."),
    "throughput": ("perf/tokens_per_s", "tokens per second", "Real tokens per second of training, without padding."),
}
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
    drawn.append(("heads", "syntactic heads that an attention head finds", _HEADS, None, _HEADS_CAPTION))
    for name, (key, title, caption) in _OPTIMIZATION.items():
        level = ("clipped above", clip) if name == "grad_norm" and clip is not None else None
        drawn.append((name, title, {key: (title, "c0")}, level, caption))
    charts = []
    for name, y_name, of_chart, level, caption in drawn:
        series = [
            Series(title, points, colour, style="marked" if key.startswith(("val/", "probe/")) else "line")
            for key, (title, colour) in of_chart.items()
            if (points := facts.curve(key))
        ]
        if series:
            chart = line_chart(series, x_name="step", y_name=y_name, level=level)
            charts.append(Captioned(name, chart, caption))
    return charts


TaskCharts = dict[str, list[Captioned]]
"""The charts of a task by what they show: `scores` or `trials`."""


_ARM_COLOURS = {
    "encoder": "c0", "combined": "c5", "without_teacher": "c9", "random_weights": "c1", "encoder_2": "c4",
}  # fmt: skip
_BASELINE_COLOURS = ("c2", "c6", "c7", "c8", "c9", "c5")
_SCORES = (
    "Thick bars are one standard deviation over seeds, small dots the seeds; thin brackets are 95 % intervals over "
    "seeds and test rows."
)


def task_charts(task: TaskFacts) -> TaskCharts:
    """Return the charts of a task."""
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
    return {"scores": scores, "trials": trials}


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
    log_x = min(values) > 0 and max(values) / min(values) >= 8
    return line_chart(series, x_name=words(parameter), y_name=f"dev {metric_name(task.metric)}", log_x=log_x)
