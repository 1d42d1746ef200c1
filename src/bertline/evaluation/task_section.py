"""What the report says of a task: scores against baselines, what the sweep tried and has to admit, details, errors."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from markupsafe import Markup

from bertline.evaluation.charts import TaskCharts
from bertline.evaluation.facts import TaskFacts
from bertline.evaluation.html import listing, number_of, score, setting, shortened, test_name, with_diverged, words
from bertline.evaluation.overlap import Overlap
from bertline.foundation.formats import count, signed
from bertline.foundation.verdicts import NOISE_UNKNOWN, outcome
from bertline.kinds.base import TaskKind
from bertline.kinds.registry import kind_named
from bertline.tasks.metrics import metric_name
from bertline.tasks.stored_rows import COLLECTION


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of text, with what stands above and below it."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    heading: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class TaskSection:
    """A task, as the template shows it."""

    facts: TaskFacts
    charts: TaskCharts
    overlaps: Mapping[str, Overlap]
    """Overlap with the pretraining corpus, by test split."""
    correct: Mapping[str, Sequence[float]]
    """Correctness (0 to 1) of the best model on each row, by test split; splits without it are missing."""

    @property
    def about(self) -> str:
        """What the task asks for."""
        return _SOURCES.get(self.facts.source) or self.kind.about(self.facts.result["labels"])

    @property
    def kind(self) -> type[TaskKind[Any, Any, Any]]:
        """The kind of the task."""
        return kind_named(self.facts.result["task_kind"])

    def comparisons(self) -> Iterator[ReportTable]:
        """Yield a table of comparisons for each test split; that of `test` has no heading."""
        head = ["measured against", "difference", "95 % interval", "smallest difference it could have seen", "outcome"]
        for split, comparisons in self.facts.result["comparisons_by_split"].items():
            note, rows = f"{NOISE_UNKNOWN.capitalize()}.", []
            for name, title in self.facts.titles().items():
                found, known = comparisons.get(name, {}), ["–", "–", "not known"]
                if "p_value" in found:
                    interval = " to ".join(map(signed, found["interval"]))
                    known = [interval, score(found["smallest_visible"]), outcome(found, _OUTCOMES)]
                    note = "the noise of seeds, of rows and of rows from one source is counted together."
                if found:
                    rows.append([title, signed(found["difference"]), *known])
            note = f"On the same {number_of(self.facts.result['rows'][split], 'row')} of {test_name(split)}; {note}"
            if rows:
                yield ReportTable(head, rows, heading="" if split == "test" else test_name(split), note=note)

    def apart(self, split: str) -> list[float]:
        """Return the mean correctness of the test rows with overlap and of the others; empty if either are few."""
        touched = set(self.overlaps[split].touched)
        parts: tuple[list[float], list[float]] = ([], [])
        for place, value in enumerate(self.correct.get(split, [])):
            parts[place not in touched].append(value)
        few = min(map(len, parts)) < 10
        return [] if few else [sum(values) / len(values) for values in parts]

    def scores(self) -> Iterator[ReportTable]:
        """Yield all scores of all systems, a table for each split."""
        systems, titles = self.facts.systems(), self.facts.titles()
        for split in ("dev", *self.facts.result["test_splits"]):
            metrics = list(dict.fromkeys(metric for one in systems.values() for metric in one["scores"].get(split, {})))
            if not metrics:
                continue
            metrics.sort(key=lambda metric: metric != self.facts.metric)  # the selection metric comes first
            # Dev has no interval, because it was used for selection.
            interval, rows = [] if split == "dev" else [f"95 % interval of {metric_name(self.facts.metric)}"], []
            for name, one in systems.items():  # an arm has means over seeds, a baseline single scores
                values = [one["scores"].get(split, {}).get(metric) for metric in metrics]
                cells = [
                    "–" if value is None else score(value["mean"], value["std"]) if "seeds" in one else score(value)
                    for value in values
                ]
                if interval:
                    bounds = one["intervals"][split]
                    cells.append(" to ".join(map(score, bounds)) if bounds else "–")
                seeds = with_diverged(len(one["seeds"]), one["num_diverged"]) if "seeds" in one else "–"
                rows.append([titles[name], *cells, seeds])
            size = self.facts.result["rows"].get(split)
            heading = words(split) + (f", {number_of(size, 'row')}" if size else "")
            yield ReportTable(["", *map(metric_name, metrics), *interval, "seeds"], rows, heading=heading)

    def admissions(self) -> list[str]:
        """Return what the trials of each arm have to admit."""
        titles, notes = self.facts.titles(), []
        for name, arm in self.facts.arms().items():
            who = "" if name == "encoder" else f" of {titles[name]}"
            notes += _repeated(arm["trials"], who)
            notes += _edges(arm["best_params"], self.facts.space, who) if arm["trials"] else []
        return notes

    def details(self) -> Iterator[ReportTable]:
        """Yield the figures that only some kinds of tasks have; none is left out."""
        details, rest = self.facts.result["details"], []
        if details.get("by_type"):
            yield _by_type("By type", details["by_type"])
        for name, value in details.items():
            if name == "before":
                after = self.facts.result["arms"]["encoder"]["scores"]["test"]
                means = {key: (before, after[key]["mean"]) for key, before in value.items()}
                rows = [[metric_name(key), *map(score, both), signed(both[1] - both[0])] for key, both in means.items()]
                note = (
                    "The order that the candidates came in, and the order that the encoder puts them into "
                    "(mean over seeds)."
                )
                yield ReportTable(["", "before", "after", "difference"], rows, heading="Before and after", note=note)
            elif name in ("confusion_matrix", "labels", "by_type", "calibration_error"):  # shown elsewhere
                continue
            elif isinstance(value, Mapping) and value and all(isinstance(inner, Mapping) for inner in value.values()):
                yield _by_type(metric_name(name).capitalize(), value)
            elif isinstance(value, Mapping):
                title = "the best choice of sentences" if name == "oracle" else metric_name(name)
                rest += [[f"{title}, {metric_name(key)}", _figure(inner)] for key, inner in value.items()]
            elif isinstance(value, int | float | str):
                rest.append([metric_name(name), _figure(value)])
        if rest:
            yield ReportTable(["", ""], rest, heading="More figures")

    def confusions(self) -> ReportTable | None:
        """Return the most frequent confusions if there are too many labels for a matrix."""
        labels, matrix = self.labels, self.facts.result.get("confusion_matrix")
        if not matrix or len(labels) <= 40:
            return None
        places = [(gold, predicted) for gold in range(len(labels)) for predicted in range(len(labels))]
        wrong = sorted((-matrix[gold][other], gold, other) for gold, other in places if gold != other)
        rows = [[labels[gold], labels[other], count(-number)] for number, gold, other in wrong if number]
        return ReportTable(["is", "taken for", "rows"], rows[:12])

    @property
    def labels(self) -> list[str]:
        """Labels of the confusion matrix."""
        return list(self.facts.result["details"].get("labels") or self.facts.result["labels"])

    def example(self) -> list[tuple[str, Markup]]:
        """Return the first row of train, (name, value) by column; empty if the rows are not there."""
        path = self.facts.folder / "train.parquet"
        first = next(pq.ParquetFile(path).iter_batches(batch_size=1), None) if path.exists() else None
        row = {} if first is None else first.to_pylist()[0]
        return [
            (name, Markup(_value(self.facts, key, row))) for key, name in _COLUMNS.items() if row.get(key) is not None
        ]


_OUTCOMES = {"better": "beaten", "worse": "better than the encoder", "not shown": "no clear difference"}


def _by_type(heading: str, by_type: Mapping[str, Mapping[str, float]]) -> ReportTable:
    names = list(dict.fromkeys(name for scores in by_type.values() for name in scores))
    rows = []
    for kind, scores in by_type.items():
        # A label without gold rows has no scores, only the number of its rows.
        shown = names if scores.get("support", scores.get("rows")) != 0 else ("support", "rows")
        rows.append([kind, *(_figure(scores.get(name) if name in shown else None) for name in names)])
    return ReportTable(["", *map(metric_name, names)], rows, heading=heading)


def _figure(value: Any) -> str:
    if value is None or isinstance(value, bool | str):
        return "–" if value is None else str(value)
    return count(value) if isinstance(value, int) else score(value)


# Fraction of a continuous range, on its logarithmic scale, that counts as its edge.
_NEAR = 0.1


def _repeated(trials: list[dict[str, Any]], who: str) -> list[str]:
    of_point: dict[str, list[int]] = {}
    for trial in trials:
        of_point.setdefault(repr(sorted(trial["params"].items())), []).append(trial["number"])
    groups = [listing([str(number) for number in numbers]) for numbers in of_point.values() if len(numbers) > 1]
    same = "; ".join(f"trials {group} are the same point" for group in groups)
    tried = f"The {number_of(len(trials), 'trial')}{who} tried only {number_of(len(of_point), 'different point')}"
    return [f"{tried}: {same}."] if groups else []


def _edges(best: Mapping[str, Any], space: Mapping[str, Mapping[str, Any]], who: str) -> Iterator[str]:
    """Yield a sentence for each best value at an edge of the space: a better one may lie beyond it."""
    for name, value in sorted(best.items()):
        if name not in space or not isinstance(value, int | float):
            continue
        values = sorted(space[name].get("values", ()))
        if space[name]["kind"] == "log_uniform":
            low, high = space[name]["low"], space[name]["high"]
            place = math.log(value / low) / (math.log(high / low) or 1.0)
        elif len(values) >= 3:  # with only two values, the best one is always at an edge
            low, high = values[0], values[-1]
            place = 0.0 if value <= low else 1.0 if value >= high else 0.5
        else:
            continue
        if not _NEAR < place < 1 - _NEAR:
            yield (
                f"The best {words(name)}{who}, {setting(value)}, is at the {'lower' if place <= _NEAR else 'upper'} "
                f"edge of the space ({setting(low)} to {setting(high)}); a better one may lie beyond it."
            )


# Sentences on the default tasks, which ask for something more special than their kind does.
_SOURCES = {
    "docs_library": "Which library does a passage of documentation describe? The names of the libraries are removed.",
    "docs_match": "Does a summary belong to the function that a text describes, or to another one of its module?",
    "docs_parameters": "Which words of a description name parameters of the function?",
    "docs_search": "Find the documentation of a function, given the summary of it.",
}
# Columns of stored rows that an example shows, with their names for people.
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


def _value(task: TaskFacts, key: str, row: dict[str, Any]) -> str:
    value, more = row[key], ""
    if key == "words":
        tagged = '<mark class="right">{}<small>{}</small></mark>'
        pairs = zip(map(escape, value), map(escape, row["tags"]), strict=True)
        return " ".join(word if tag == "O" else tagged.format(word, tag) for word, tag in pairs)
    if key == "labels":
        value = _label(task, row)
    elif key == "document_ids":
        value = _document(task, value)
    elif isinstance(value, list):
        more = f" … ({number_of(len(value), key.removesuffix('s'))})" if len(value) > 1 else ""
        value = value[0] if value else "none"
    return escape(shortened(str(value))) + more


def _label(task: TaskFacts, row: dict[str, Any]) -> str:
    """Return the label of a row by name; several if it has several, or one for each of its sentences."""
    names, value = task.result["labels"], row["labels"]
    several = value if "sentences" in row else np.flatnonzero(value)
    return ", ".join(names[number] for number in ([value] if isinstance(value, int) else several)) or "none"


def _document(task: TaskFacts, ids: list[str]) -> str:
    path = task.folder / f"{COLLECTION}.parquet"
    matches = pq.read_table(path, filters=[("ids", "in", ids[:1])]).to_pylist() if path.exists() else []
    return " ".join(filter(None, (matches[0]["titles"], matches[0]["texts"]))) if matches else ", ".join(ids)
