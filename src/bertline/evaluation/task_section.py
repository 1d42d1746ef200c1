"""Task section of the report: an example row, scores and baselines, what the sweep tried and has to admit, errors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow.parquet as pq

from bertline.evaluation.facts import TaskFacts
from bertline.evaluation.html import (
    CHARACTERS,
    escape,
    figure,
    folded,
    listing,
    metric_name,
    number_of,
    paragraph,
    score,
    section,
    setting,
    shortened,
    side_by_side,
    table,
    verdict,
    with_diverged,
)
from bertline.evaluation.overlap import Overlap
from bertline.evaluation.task_charts import varied
from bertline.evaluation.task_scores import conclusion, overlap_notes, score_tables, scores_sentence, verdicts
from bertline.foundation.formats import count, percent, signed
from bertline.kinds.registry import kind_named
from bertline.tasks.stored_rows import COLLECTION

# Details that only some kinds of tasks have: confusion matrix, scores by type, scores before and after re-ranking.

_NAMES = {"oracle": "the best choice of sentences"}
_MOST_LABELS = 40
_MOST_HEADS, _LONGEST_HEAD = 6, 14
_MOST_CONFUSIONS = 12
_SHOWN_ELSEWHERE = ("confusion_matrix", "labels", "by_type", "before", "calibration_error")
_THRESHOLDS = {
    "no_answer_threshold": "It says that there is no answer where 'none' scores more than {} above the best answer",
    "threshold": "It gives every label (of two, the second) whose probability is at least {}",
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
    error_size = score(errors["before"])
    if "after" in errors:
        error_size = f"{error_size} without the temperature, {score(errors['after'])} with it"
    return paragraph(
        f"Expected calibration error on test: {error_size} (the mean "
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
    note = f"The most frequent of them among {len(labels)} labels, on test rows of the seed that was best on dev."
    return paragraph(note) + table(["is", "taken for", "rows"], rows)


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
    note = "The order that the candidates came in, and the order that the encoder puts them into (mean over seeds)."
    return "<h3>Before and after</h3>" + paragraph(note) + table(["", "before", "after", "difference"], rows)


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
    template = _THRESHOLDS.get(name, f"{name.replace('_', ' ')}: {{}}".capitalize())
    return paragraph(f"{template.format(f'{value:.3g}')} (chosen on dev).")


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float | str)


def _figure(value: Any) -> str:
    if value is None or isinstance(value, bool | str):
        return "–" if value is None else str(value)
    return count(value) if isinstance(value, int) else score(value)


_FEWEST_CHOICES = 3
"""With only two values, the best one is always at an edge."""
_NEAR = 0.1
"""Fraction of a continuous range, on its logarithmic scale, that counts as its edge."""


def sweep_notes(task: TaskFacts) -> list[str]:
    """Return sentences on the trials of each arm; none if there is nothing to admit."""
    titles = task.titles()
    notes = []
    for name, arm in task.arms().items():
        who = "" if name == "encoder" else f" of {titles[name]}"
        notes += _repeated(arm["trials"], who)
        notes += _edges(arm["best_params"], task.space, who) if arm["trials"] else []
    return notes


def _repeated(trials: list[dict[str, Any]], who: str) -> list[str]:
    """Return a sentence if several trials had the same hyperparameters."""
    of_point: dict[str, list[int]] = {}
    for trial in trials:
        of_point.setdefault(repr(sorted(trial["params"].items())), []).append(trial["number"])
    groups = [listing([str(number) for number in numbers]) for numbers in of_point.values() if len(numbers) > 1]
    if not groups:
        return []
    same = "; ".join(f"trials {group} are the same point" for group in groups)
    return [
        f"The {number_of(len(trials), 'trial')}{who} tried only {number_of(len(of_point), 'different point')}: {same}."
    ]


def _edges(best: Mapping[str, Any], space: Mapping[str, Mapping[str, Any]], who: str) -> Iterator[str]:
    """Yield a sentence for each best value at an edge of the space: a better one may lie beyond it."""
    for name, value in sorted(best.items()):
        if name not in space or not isinstance(value, int | float):
            continue
        values = sorted(space[name].get("values", ()))
        if space[name]["kind"] == "log_uniform":
            low, high = space[name]["low"], space[name]["high"]
            place = math.log(value / low) / (math.log(high / low) or 1.0)
        elif len(values) >= _FEWEST_CHOICES:
            low, high = values[0], values[-1]
            place = 0.0 if value <= low else 1.0 if value >= high else 0.5
        else:
            continue
        if not _NEAR < place < 1 - _NEAR:
            yield (
                f"The best {name.replace('_', ' ')}{who}, {setting(value)}, is at the "
                f"{'lower' if place <= _NEAR else 'upper'} edge of the space ({setting(low)} to {setting(high)}); a "
                "better one may lie beyond it."
            )


_SPLIT = "train"
_SOURCES = {
    "docs_library": "Which library does a passage of documentation describe? The names of the libraries are removed.",
    "docs_match": "Does a summary belong to the function that a text describes, or to another one of its module?",
    "docs_parameters": "Which words of a description name parameters of the function?",
    "docs_search": "Find the documentation of a function, given the summary of it.",
}
"""Sentences on the default tasks, which ask for something more special than their kind does."""
_COLUMNS = {
    "texts": "text",
    "text_pairs": "second text",
    "labels": "label",
    "numbers": "number",
    "words": "words",
    "questions": "question",
    "contexts": "passage",
    "answers": "answers",
    "queries": "query",
    "document_ids": "right document",
    "candidates": "candidates",
    "sentences": "sentences",
    "summaries": "summary",
}
"""Columns of stored rows that an example shows, with their names for people."""


def introduction(task: TaskFacts) -> str:
    """Return the sentence and the example as HTML; no example if the rows are not there."""
    about = _SOURCES.get(task.source) or kind_named(task.result["task_kind"]).about(task.result["labels"])
    groups = ""
    if counts := task.manifest.get("groups"):
        named = listing([f"{counts[split]:,} in {split}" for split in ("train", "dev", *task.result["test_splits"])])
        groups = paragraph(f"A group of rows is in one split, and verdicts count it as one row. Groups: {named}.")
    return paragraph(about) + groups + _example(task)


def _example(task: TaskFacts) -> str:
    path = task.folder / f"{_SPLIT}.parquet"
    first = next(pq.ParquetFile(path).iter_batches(batch_size=1), None) if path.exists() else None
    if first is None or first.num_rows == 0:
        return ""
    row: dict[str, Any] = first.to_pylist()[0]
    shown = ((name, _value(task, key, row)) for key, name in _COLUMNS.items() if row.get(key) is not None)
    lines = (f"<p><small>{name}</small> {value}</p>" for name, value in shown)
    return f"<blockquote>{''.join(lines)}<footer class='soft'>An example, the first row of train</footer></blockquote>"


def _value(task: TaskFacts, key: str, row: dict[str, Any]) -> str:
    value = row[key]
    if key == "words":
        return " ".join(map(_tagged, value, row["tags"]))
    if key == "labels":
        return escape(shortened(_label(task, row), CHARACTERS))
    if key == "document_ids":
        return escape(shortened(_document(task, value), CHARACTERS))
    if isinstance(value, list):
        more = f" … ({number_of(len(value), key.removesuffix('s'))})" if len(value) > 1 else ""
        return escape(shortened(str(value[0]) if value else "none", CHARACTERS)) + more
    return escape(shortened(str(value), CHARACTERS))


def _tagged(word: str, tag: str) -> str:
    return f'<mark class="right">{escape(word)}<small>{escape(tag)}</small></mark>' if tag != "O" else escape(word)


def _label(task: TaskFacts, row: dict[str, Any]) -> str:
    """Return the label of a row by name; several if it has several, or one for each of its sentences."""
    names, value = task.result["labels"], row["labels"]
    if isinstance(value, int):
        return str(names[value])
    if "sentences" in row:
        return ", ".join(names[number] for number in value)
    return ", ".join(name for name, given in zip(names, value, strict=True) if given) or "none"


def _document(task: TaskFacts, ids: list[str]) -> str:
    """Return the text of the first right document of a query."""
    path = task.folder / f"{COLLECTION}.parquet"
    matches = pq.read_table(path, filters=[("ids", "in", ids[:1])]).to_pylist() if path.exists() else []
    return " ".join(filter(None, (matches[0]["titles"], matches[0]["texts"]))) if matches else ", ".join(ids)


def task_section(
    task: TaskFacts, charts: dict[str, str], overlaps: dict[str, Overlap], correct: dict[str, list[float]]
) -> str:
    """Return the section of one task.

    Args:
        task: Data and sweep results of the task.
        charts: Charts from `task_charts`.
        overlaps: Overlap with the pretraining corpus, by test split.
        correct: Correctness of the best model on each row, by test split.
    """
    metric = metric_name(task.metric)
    caption = f"Test {metric}. Thick bars are one standard deviation over seeds, small dots the seeds; thin brackets "
    caption += "are 95 % intervals over seeds and test rows."
    figures = [figure(charts[f"{task.name}_scores"], caption)]
    if f"{task.name}_label_efficiency" in charts:
        figures.append(figure(charts[f"{task.name}_label_efficiency"], f"Test {metric} by number of labelled rows."))
    if f"{task.name}_distillation" in charts:
        caption = f"What the student costs and is worth, compared with its teacher ({task.distillation['machine']})."
        figures.append(figure(charts[f"{task.name}_distillation"], caption))
    trials = [
        figure(charts[f"{task.name}_trials_{name}"], f"Dev {metric} of every trial by {name.replace('_', ' ')}.")
        for name in varied(task)
    ]
    notes = verdict(" ".join(admitted)) if (admitted := sweep_notes(task)) else ""
    blocks = [
        introduction(task),
        paragraph(conclusion(task), "lead"),
        paragraph(scores_sentence(task)),
        verdicts(task),
        _teacher(task),
        overlap_notes(task, overlaps, correct),
        paragraph(str(task.result["note"]), "soft") if task.result.get("note") else "",
        side_by_side(*figures),
        score_tables(task),
        f"<h3>What the sweep tried</h3>{paragraph(_choice(task))}{notes}",
        f"{side_by_side(*trials)}{_candidates(task)}",
        details_section(task),
        errors_section(task),
    ]
    return section(f"task-{task.name}", f"Task: {task.name}", *blocks)


def _teacher(task: TaskFacts) -> str:
    scores = task.result.get("teacher", {}).get("test")
    return paragraph(f"Its teacher has {score(scores[task.metric])} on test.") if scores else ""


def _choice(task: TaskFacts) -> str:
    arm, rows = task.arms()["encoder"], task.result["rows"]
    states = [trial["state"] for trial in arm["trials"]]
    pruned = f", {states.count('PRUNED')} of them stopped early" if "PRUNED" in states else ""
    failed = f", {states.count('FAIL')} failed" if "FAIL" in states else ""
    tests = listing([f"{count(rows[split])} ({split})" for split in task.result["test_splits"] if split in rows])
    tried = f"{number_of(len(states), 'trial')} for the encoder{pruned}{failed}. Chosen on dev: "
    how = tried if states else "One configuration, and nothing to choose: "
    shares = [
        f"{name.replace('_', ' ')} {percent(share)}" for name, share in task.result.get("importances", {}).items()
    ]
    explained = f" What explains the differences between trials: {listing(shares)} (PED-ANOVA)." if shares else ""
    return (
        f"{how}{_settings(arm['best_params'])}. Trained on {count(rows['train'])} rows, chosen on "
        f"{count(rows['dev'])}, tested once on {tests}.{explained}"
    )


def _candidates(task: TaskFacts) -> str:
    """Return the configurations that were repeated over seeds: fewest diverged seeds first, then best dev mean."""
    arm = task.arms()["encoder"]

    def rank(candidate: dict[str, Any]) -> tuple[int, float]:
        # A candidate whose seeds all diverged has no mean and comes last.
        return candidate.get("num_diverged", 0), -candidate["dev_mean"] if candidate["dev"] else math.inf

    candidates = sorted(arm["candidates"], key=rank)
    if len(candidates) < 2:
        return ""
    rows = [
        [
            _settings(one["params"]),
            score(one["dev_mean"], one["dev_std"]) if one["dev"] else "–",
            with_diverged(len(one["dev"]), one.get("num_diverged", 0)),
            "chosen" if one["params"] == arm["best_params"] else "",
        ]
        for one in candidates
    ]
    content = table(["configuration", f"dev {metric_name(task.metric)}", "seeds", ""], rows)
    return folded(f"The best {len(rows)} configurations over seeds", content)


def _settings(params: dict[str, object]) -> str:
    named = [f"{name.replace('_', ' ')} {setting(value)}" for name, value in sorted(params.items())]
    return listing(named or ["the defaults"])


_ERRORS = 8


def errors_section(task: TaskFacts) -> str:
    """Return the most confident errors of the best model on test."""
    errors = task.result.get("examples", {}).get("confident_errors", [])[:_ERRORS]
    if not errors:
        return ""
    kind = kind_named(task.result["task_kind"])
    return "<h3>Where it is sure and wrong</h3>" + "".join(map(kind.error_block, errors))
