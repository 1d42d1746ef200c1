"""What the report says of a task: scores against baselines, details, errors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertline.evaluation.charts import TaskCharts
from bertline.evaluation.facts import TaskFacts
from bertline.evaluation.html import number_of, score, test_name, with_diverged, words
from bertline.evaluation.overlap import Overlap
from bertline.foundation.formats import count, signed
from bertline.foundation.verdicts import NOISE_UNKNOWN, outcome
from bertline.kinds.base import TaskKind
from bertline.kinds.registry import kind_named
from bertline.tasks.metrics import metric_name


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

    def details(self) -> Iterator[ReportTable]:
        """Yield the figures that only some kinds of tasks have; none is left out."""
        details, rest = self.facts.result["details"], []
        if details.get("by_type"):
            yield _by_type("By type", details["by_type"])
        for name, value in details.items():
            if name in ("confusion_matrix", "labels", "by_type", "calibration_error"):  # shown elsewhere
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
