"""Details that only some kinds of tasks have: confusion matrix, scores by type, scores before and after re-ranking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertline.evaluation.facts import TaskFacts
from bertline.evaluation.html import escape, metric_name, paragraph, score, table
from bertline.foundation.formats import count, signed

_NAMES = {"oracle": "the best choice of sentences"}
_MOST_LABELS = 40
_MOST_HEADS, _LONGEST_HEAD = 6, 14
_MOST_CONFUSIONS = 12
_SHOWN_ELSEWHERE = ("confusion_matrix", "labels", "by_type", "before", "calibration_error")
_THRESHOLDS = {
    "no_answer_threshold": "It says that there is no answer where 'none' scores more than {} above the best answer",
    "threshold": "It gives every label whose probability is at least {}",
    "outside_margin": "It takes a word for O only where the logit of O is more than {} above that of the best tag",
    "temperature": "Its logits are divided by {} before they become probabilities",
}


def details_section(task: TaskFacts) -> str:
    """Return the task-specific details of the best model on test."""
    details: dict[str, Any] = task.result["details"]
    matrix = task.result.get("confusion_matrix")
    labels = details.get("labels") or task.result["labels"]
    blocks = [
        *(_decided(name, value) for name, value in task.calibration.items()),
        _calibration(details["calibration_error"]) if details.get("calibration_error") else "",
        _confusion(matrix, labels) if matrix else "",
        f"<h3>By type</h3>{_by_type(details['by_type'])}" if details.get("by_type") else "",
        _before_and_after(task, details["before"]) if details.get("before") else "",
        _others({name: value for name, value in details.items() if name not in _SHOWN_ELSEWHERE}),
    ]
    return "".join(blocks)


def _calibration(errors: dict[str, float]) -> str:
    """Describe the expected calibration error without temperature (`before`) and, if one was used, with it
    (`after`)."""
    found = score(errors["before"])
    if "after" in errors:
        found = f"{found} without the temperature, {score(errors['after'])} with it"
    return paragraph(
        f"Expected calibration error on test: {found} (the mean "
        "distance between a probability and how often it was right, over 15 bins; arXiv 1706.04599, section 2)."
    )


def _confusion(matrix: list[list[int]], labels: list[str]) -> str:
    heading = "<h3>What is taken for what</h3>"
    if len(labels) > _MOST_LABELS:
        return heading + _worst_confusions(matrix, labels)
    # Columns are headed by the labels if these are few and short, else by numbers.
    numbered = len(labels) > _MOST_HEADS or max(map(len, labels)) > _LONGEST_HEAD
    head = "".join(
        f'<th title="{escape(label)}">{number if numbered else escape(label)}</th>'
        for number, label in enumerate(labels, 1)
    )
    body = []
    for number, (label, row) in enumerate(zip(labels, matrix, strict=True), 1):
        total = sum(row) or 1
        cells = "".join(f'<td style="--v:{value / total:.2f}">{value or ""}</td>' for value in row)
        body.append(f"<tr><th>{f'{number} ' if numbered else ''}{escape(label)}</th>{cells}</tr>")
    return (
        heading
        + paragraph("Test rows of the seed that was best on dev: a line for each true label, a column for each answer.")
        + f'<div class="scroll"><table class="matrix"><thead><tr><th></th>{head}</tr></thead>'
        + f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _worst_confusions(matrix: list[list[int]], labels: list[str]) -> str:
    places = ((gold, predicted) for gold in range(len(labels)) for predicted in range(len(labels)) if gold != predicted)
    wrong = sorted((-matrix[gold][predicted], gold, predicted) for gold, predicted in places if matrix[gold][predicted])
    rows = [[labels[gold], labels[predicted], count(-value)] for value, gold, predicted in wrong[:_MOST_CONFUSIONS]]
    said = f"The most frequent of them among {len(labels)} labels, on test rows of the seed that was best on dev."
    return paragraph(said) + table(["is", "taken for", "rows"], rows)


def _by_type(by_type: Mapping[str, Mapping[str, float]]) -> str:
    names = list(dict.fromkeys(name for scores in by_type.values() for name in scores))
    # A label without gold rows has no scores, only the number of its rows.
    counted = {kind: scores.get("support", scores.get("rows")) != 0 for kind, scores in by_type.items()}
    rows = [
        [kind, *(_figure(scores.get(name) if counted[kind] or name in ("support", "rows") else None) for name in names)]
        for kind, scores in by_type.items()
    ]
    return table(["", *map(metric_name, names)], rows)


def _before_and_after(task: TaskFacts, before: Mapping[str, float]) -> str:
    after: Mapping[str, Any] = task.result["arms"]["encoder"]["scores"].get("test", {})
    means = {name: after[name]["mean"] for name in before if name in after}
    rows = [
        [metric_name(name), score(before[name]), score(mean), signed(mean - before[name])]
        for name, mean in means.items()
    ]
    if not rows:
        return _others({"before": before})
    said = "The order that the candidates came in, and the order that the encoder puts them into (mean over seeds)."
    return "<h3>Before and after</h3>" + paragraph(said) + table(["", "before", "after", "difference"], rows)


def _others(details: Mapping[str, Any]) -> str:
    """Return all remaining figures as plain tables, so that none is omitted."""
    blocks, rows = [], []
    for name, value in details.items():
        words = metric_name(name)
        if isinstance(value, Mapping) and value and all(isinstance(inner, Mapping) for inner in value.values()):
            blocks.append(f"<h3>{escape(words.capitalize())}</h3>{_by_type(value)}")
        elif isinstance(value, Mapping) and all(_is_plain(inner) for inner in value.values()):
            words = _NAMES.get(name, words)
            rows += [[f"{words}, {metric_name(key)}", _figure(inner)] for key, inner in value.items()]
        elif _is_plain(value):
            rows.append([words, _figure(value)])
    if rows:
        blocks.append("<h3>More figures</h3>" + table(["", ""], rows))
    return "".join(blocks)


def _decided(name: str, value: float) -> str:
    said = _THRESHOLDS.get(name, f"{name.replace('_', ' ')}: {{}}".capitalize())
    return paragraph(f"{said.format(f'{value:.3g}')} (chosen on dev).")


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float | str)


def _figure(value: Any) -> str:
    if value is None or isinstance(value, bool | str):
        return "–" if value is None else str(value)
    return count(value) if isinstance(value, int) else score(value)
