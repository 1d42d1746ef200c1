"""A task: its scores beside the baselines, how much labelling it takes, what the sweep tried, where it goes wrong."""

from __future__ import annotations

from typing import Any

from bertline.evaluation.charts import Row, Series, dot_chart, line_chart, scatter_chart
from bertline.evaluation.facts import TaskFacts, spread_of
from bertline.evaluation.overview_section import scores_sentence
from bertline.evaluation.parts import figure, folded, paragraph, section, side_by_side, table
from bertline.evaluation.wording import METRIC_NAMES, count, escape, listing, score, setting, shortened

ARMS = {"encoder": ("pretrained encoder", "c0"), "random_weights": ("random weights", "c1")}
TFIDF = ("TF-IDF, logistic regression", "c2")
MAJORITY = ("most frequent label", "c3")
_ERRORS = 8
_ERROR_CHARACTERS = 420


def task_charts(task: TaskFacts) -> dict[str, str]:
    """Charts by file name, each begun with the task's name."""
    charts = {f"{task.name}_scores": _scores(task.result)}
    if task.result.get("label_efficiency"):
        charts[f"{task.name}_label_efficiency"] = _label_efficiency(task.result)
    for parameter in varied(task.result):
        charts[f"{task.name}_trials_{parameter}"] = _trials(task.result, parameter)
    return charts


def task_section(task: TaskFacts, charts: dict[str, str]) -> str:
    """Everything about one task."""
    result = task.result
    metric = METRIC_NAMES[result["metric"]]
    figures = [
        figure(charts[f"{task.name}_scores"], f"Test {metric}. Bars are one standard deviation over seeds."),
    ]
    if f"{task.name}_label_efficiency" in charts:
        figures.append(figure(charts[f"{task.name}_label_efficiency"], f"Test {metric} by number of labelled rows."))
    trials = [
        figure(charts[f"{task.name}_trials_{parameter}"], f"Dev {metric} of every trial by {parameter}.")
        for parameter in varied(result)
    ]
    blocks = [
        paragraph(scores_sentence(task)),
        _verdict(result),
        side_by_side(*figures),
        _score_table(result),
        f"<h3>What the sweep tried</h3>{paragraph(_choice(result))}{side_by_side(*trials)}",
        _confusion(result),
        _errors(result),
    ]
    return section(f"task-{task.name}", f"Task: {task.name}", *blocks)


def varied(result: dict[str, Any]) -> list[str]:
    """The hyperparameters that are numbers and took more than one value."""
    trials = [trial for arm in result["arms"].values() if arm for trial in arm["trials"] if trial["dev"] is not None]
    names = sorted({name for trial in trials for name in trial["params"]})
    values = {name: {trial["params"].get(name) for trial in trials} for name in names}
    return [
        name
        for name, found in values.items()
        if len(found) > 1 and all(isinstance(value, int | float) for value in found)
    ]


def _scores(result: dict[str, Any]) -> str:
    rows = [
        Row(name, arm["test_mean"], css, spread_of(arm, "test"), [seed["test"] for seed in arm["seeds"]])
        for key, (name, css) in ARMS.items()
        if (arm := result["arms"].get(key))
    ]
    baselines = result["baselines"]
    rows.append(Row(TFIDF[0], baselines["tfidf_logistic_regression"]["test"], TFIDF[1]))
    rows.append(Row(MAJORITY[0], baselines["majority"]["test"], MAJORITY[1]))
    return dot_chart(rows, x_name=f"test {METRIC_NAMES[result['metric']]}")


def _label_efficiency(result: dict[str, Any]) -> str:
    series = []
    for key, (name, css) in {**ARMS, "tfidf_logistic_regression": TFIDF}.items():
        rows = sorted((row for row in result["label_efficiency"] if row["arm"] == key), key=lambda row: row["rows"])
        points = [(float(row["rows"]), row["test_mean"]) for row in rows]
        series.append(Series(name, points, css, [row["test_std"] for row in rows], marked=True))
    level = (MAJORITY[0], result["baselines"]["majority"]["test"])
    y_name = f"test {METRIC_NAMES[result['metric']]}"
    return line_chart(series, x_name="labelled rows", y_name=y_name, level=level, log_x=True)


def _trials(result: dict[str, Any], parameter: str) -> str:
    groups = []
    for key, (name, css) in ARMS.items():
        arm = result["arms"].get(key)
        trials = arm["trials"] if arm else []
        points = [
            (float(trial["params"][parameter]), trial["dev"])
            for trial in trials
            if trial["dev"] is not None and parameter in trial["params"]
        ]
        groups.append((name, css, points))
    values = [x for _, _, points in groups for x, _ in points]
    log_x = min(values) > 0 and max(values) / min(values) >= 8
    y_name = f"dev {METRIC_NAMES[result['metric']]}"
    return scatter_chart(groups, x_name=parameter, y_name=y_name, log_x=log_x)


def _verdict(result: dict[str, Any]) -> str:
    comparison = result.get("comparison")
    if comparison and len(result["arms"]["encoder"]["seeds"]) < 2:
        return paragraph("One seed has no spread, so whether pretraining helps here is not shown.", "verdict unsure")
    if not comparison:
        return paragraph("It was not compared with the same encoder from random weights.", "verdict unsure")
    difference, threshold = comparison["difference"], comparison["threshold"]
    if comparison["beats_random_weights"]:
        said, css = "Pretraining helps here", "verdict good"
    else:
        said, css = "Pretraining makes no clear difference here", "verdict unsure"
    than = "more" if difference > threshold else "not more"
    return paragraph(
        f"{said}: the difference of the means, {difference:.3f}, is {than} than the {threshold:.3f} that two standard "
        "deviations of the seeds would give by chance.",
        css,
    )


def _score_table(result: dict[str, Any]) -> str:
    rows = []
    for key, (name, _) in ARMS.items():
        if arm := result["arms"].get(key):
            dev, test = (score(arm[f"{split}_mean"], spread_of(arm, split)) for split in ("dev", "test"))
            rows.append([name, dev, test, str(len(arm["seeds"]))])
    for key, (name, _) in {"tfidf_logistic_regression": TFIDF, "majority": MAJORITY}.items():
        baseline = result["baselines"][key]
        rows.append([name, score(baseline["dev"]), score(baseline["test"]), "–"])
    return folded("All scores as a table", table(["", "dev", "test", "seeds"], rows))


def _choice(result: dict[str, Any]) -> str:
    arm = result["arms"]["encoder"]
    states = [trial["state"] for trial in arm["trials"]]
    pruned = f", {states.count('PRUNED')} of them stopped early" if "PRUNED" in states else ""
    chosen = listing([f"{name} {setting(value)}" for name, value in sorted(arm["best_params"].items())] or ["defaults"])
    rows = result["rows"]
    return (
        f"{len(states)} trials for the encoder{pruned}. Chosen on dev: {chosen}. "
        f"Trained on {count(rows['train'])} rows, chosen on {count(rows['dev'])}, tested once on {count(rows['test'])}."
    )


def _confusion(result: dict[str, Any]) -> str:
    matrix, labels = result.get("confusion_matrix"), result["labels"]
    if not matrix:
        return ""
    head = "".join(f'<th title="{escape(label)}">{number}</th>' for number, label in enumerate(labels, 1))
    body = []
    for number, (label, row) in enumerate(zip(labels, matrix, strict=True), 1):
        total = sum(row) or 1
        cells = "".join(f'<td style="--v:{value / total:.2f}">{value or ""}</td>' for value in row)
        body.append(f"<tr><th>{number} {escape(label)}</th>{cells}</tr>")
    return (
        "<h3>What is taken for what</h3>"
        + paragraph("Test rows of the seed that was best on dev: a line for each true label, a column for each answer.")
        + f'<div class="scroll"><table class="matrix"><thead><tr><th></th>{head}</tr></thead>'
        + f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _errors(result: dict[str, Any]) -> str:
    errors = result.get("examples", {}).get("confident_errors", [])[:_ERRORS]
    if not errors:
        return ""
    items = []
    for error in errors:
        texts = [error["text"], *([error["text_pair"]] if error.get("text_pair") else [])]
        quoted = "".join(f"<p>{escape(shortened(text, _ERROR_CHARACTERS))}</p>" for text in texts)
        said = f"{escape(error['predicted'])} ({100 * error['score']:.0f} %)"
        items.append(f"<blockquote>{quoted}<footer>is {escape(error['gold'])}, taken for {said}</footer></blockquote>")
    return "<h3>Where it is sure and wrong</h3>" + "".join(items)
