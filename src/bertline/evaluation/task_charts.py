"""Charts of a task: scores of all systems, scores by training size, trials by hyperparameter."""

from __future__ import annotations

from typing import Any

from bertline.evaluation.charts import Row, Series, dot_chart, line_chart, scatter_chart
from bertline.evaluation.facts import TaskFacts
from bertline.evaluation.html import metric_name

_ARM_COLOURS = {"encoder": "c0", "combined": "c5", "random_weights": "c1", "reference_encoder": "c4"}
_BASELINE_COLOURS = ("c2", "c6", "c7", "c8", "c9", "c5")
_MAJORITY_COLOUR = "c3"


def task_charts(task: TaskFacts) -> dict[str, str]:
    """Return the charts by file name; each name begins with the task's name."""
    charts = {f"{task.name}_scores": _scores(task)}
    if task.result.get("label_efficiency"):
        charts[f"{task.name}_label_efficiency"] = _label_efficiency(task)
    for parameter in varied(task):
        charts[f"{task.name}_trials_{parameter}"] = _trials(task, parameter)
    return charts


def varied(task: TaskFacts) -> list[str]:
    """Return the numeric hyperparameters with more than one value in the trials."""
    trials = [trial for arm in task.arms().values() for trial in arm["trials"] if trial["dev"] is not None]
    values = {
        name: {trial["params"].get(name) for trial in trials}
        for name in sorted({name for trial in trials for name in trial["params"]})
    }
    return [name for name, found in values.items() if len(found) > 1 and all(map(_is_number, found))]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def colours(task: TaskFacts) -> dict[str, str]:
    """Return a class of `chart.css` for every encoder and baseline."""
    others = [name for name in task.result["baselines"] if name != "majority"]
    cycle = {name: _BASELINE_COLOURS[place % len(_BASELINE_COLOURS)] for place, name in enumerate(others)}
    return {**_ARM_COLOURS, **cycle, "majority": _MAJORITY_COLOUR}


def _scores(task: TaskFacts) -> str:
    colour, titles = colours(task), task.titles()
    rows = [
        Row(
            titles[name],
            arm["test_mean"],
            colour[name],
            arm["test_std"],
            [seed["test"] for seed in arm["seeds"]],
            arm["test_interval"],
        )
        for name, arm in task.arms().items()
    ]
    rows += [
        Row(titles[name], baseline["test"], colour[name], interval=baseline["test_interval"])
        for name, baseline in task.baselines().items()
    ]
    return dot_chart(rows, x_name=f"test {metric_name(task.metric)}")


def _label_efficiency(task: TaskFacts) -> str:
    colour, titles = colours(task), task.titles()
    of_name: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(task.result["label_efficiency"], key=lambda row: row["rows"]):
        of_name.setdefault(row["arm"], []).append(row)
    series = [
        Series(
            titles.get(name, name),
            [(float(row["rows"]), row["test_mean"]) for row in rows],
            colour.get(name, "c5"),
            [row["test_std"] or 0.0 for row in rows],
            marked=True,
        )
        for name, rows in sorted(of_name.items(), key=lambda item: list(titles).index(item[0]))
    ]
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
    colour, titles = colours(task), task.titles()
    groups = [
        (
            titles[name],
            colour[name],
            [
                (float(trial["params"][parameter]), trial["dev"])
                for trial in arm["trials"]
                if trial["dev"] is not None and parameter in trial["params"]
            ],
        )
        for name, arm in task.arms().items()
    ]
    values = [x for _, _, points in groups for x, _ in points]
    searched = task.space.get(parameter, {}).get("kind")
    log_x = min(values) > 0 and (searched == "log_uniform" or max(values) / min(values) >= 8)
    name = parameter.replace("_", " ")
    return scatter_chart(groups, x_name=name, y_name=f"dev {metric_name(task.metric)}", log_x=log_x)
