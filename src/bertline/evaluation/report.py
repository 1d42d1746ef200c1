"""The report: what it says of the pipeline as a whole, and the page itself, from the template `report.html`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from markupsafe import Markup

from bertline.corpus.document import Document
from bertline.corpus.storage import read_documents
from bertline.evaluation.charts import Captioned
from bertline.evaluation.facts import Facts, PipelineFolders
from bertline.evaluation.html import in_unit, metric_name, rendered, score, test_score
from bertline.evaluation.overlap import Overlap
from bertline.evaluation.reference import reference_for
from bertline.evaluation.task_section import TaskSection
from bertline.foundation.formats import count, percent
from bertline.foundation.seeds import unit_interval
from bertline.modeling.families import FAMILIES
from bertline.pretraining.objectives.base import Metric, shown_means
from bertline.tokenization.tokenizer import Tokenizer

_FEW_TASKS = 3
"""Maximum number of tasks that get a sentence and a tile each; more tasks get a table."""
_FRAMES = 9
"""Maximum number of mask predictions shown per sentence."""
_CONSIDERED_DOCUMENTS = 2_000
_SENTENCES = 4
"""Sentences that a sample document shows, and has at least."""


def report_page(
    facts: Facts,
    tasks: Sequence[TaskSection],
    pipeline: PipelineFolders,
    *,
    pretraining: Sequence[Captioned],
    dropped: Sequence[Captioned],
    num_documents: int,
) -> str:
    """Return the report as one file without other files, with charts of `pretraining` and of what was `dropped` from
    the corpus, and `num_documents` sample documents with their tokens."""
    return rendered(
        "report.html",
        title=facts.title,
        facts=facts,
        training=facts.training,
        family=FAMILIES[facts.params.get("model", {}).get("family", "bert")],
        overview=Overview(facts, tasks),
        tasks=tasks,
        pretraining=pretraining,
        reference=None if facts.taken_from else reference_for(facts.params),
        dropped=dropped,
        samples=_samples(pipeline, num_documents),
        configuration={
            name: [[key, json.dumps(value, ensure_ascii=False)] for key, value in _flat(content)]
            for name, content in facts.params.items()
        },
    )


@dataclass(frozen=True, slots=True)
class Overview:
    """What the report says of several facts together."""

    facts: Facts
    tasks: Sequence[TaskSection]

    @property
    def few(self) -> bool:
        """Whether each task gets a sentence and a tile."""
        return len(self.tasks) <= _FEW_TASKS

    @property
    def held_out(self) -> str:
        """The objective's summary of the held-out scores, compared with its baselines."""
        baselines, values = self.facts.baselines, {}
        for shown in shown_means(self.facts.pretrained_by):
            value = self.facts.training[f"val/{shown.name}"]
            values[shown.name] = in_unit(value, shown.unit)
            if shown.name in baselines:
                below = baselines[shown.name] - value
                margin = f"{in_unit(abs(below), shown.unit)} {'below' if below >= 0 else 'above'}"
                values[f"{shown.name}_baseline"] = in_unit(baselines[shown.name], shown.unit)
                values[f"{shown.name}_margin"] = margin
        return self.facts.pretrained_by.summary.format(**values)

    def tiles(self) -> list[tuple[str, str, str]]:
        """Return value, name and note of the main figures: of pretraining, and of each task if these are few."""
        tiles = []
        for shown in () if self.facts.taken_from else shown_means(self.facts.pretrained_by):
            known = self.facts.baselines.get(shown.name)
            if known is not None:
                note = f"{shown.baseline} {in_unit(known, shown.unit)}"
            else:
                vocab_size = count(self.facts.tokenizer["vocab_size"])
                note = shown.note.format(vocab_size=vocab_size) if isinstance(shown, Metric) else ""
            tiles.append((in_unit(self.facts.training[f"val/{shown.name}"], shown.unit), shown.title, note))
        return tiles + [_tile(task) for task in self.tasks if self.few]

    def task_table(self) -> tuple[list[str], list[list[str]]]:
        """Return head and rows of a table with each task's score next to the other arms and the strongest opponent."""
        head = ["task", "test", "this encoder", "combined", "random weights", "best other encoder"]
        head += ["strongest simple opponent", "winner", "read in pretraining?"]
        rows = []
        for section in self.tasks:
            task = section.facts
            arms, baselines, titles = task.arms(), task.baselines(), task.titles()
            names = ("encoder", "combined", "random_weights")
            cells = {name: test_score(arms[name]) if name in arms else "–" for name in names}
            rivals = sorted((arm["dev_mean"], name) for name, arm in arms.items() if name.startswith("encoder_"))
            cells["rival"] = f"{test_score(arms[rivals[-1][1]])} ({titles[rivals[-1][1]]})" if rivals else "–"
            best = task.strongest
            cells["opponent"] = "–" if best is None else f"{score(baselines[best]['test'])} ({titles[best]})"
            verdict, winners = _verdict(task.result["conclusion"])
            cells |= {winner: Markup("<b>{}</b>").format(cells[winner]) for winner in winners}
            note = _overlap_note(section.overlaps.values()) or "–"
            rows.append([task.name, metric_name(task.metric), *cells.values(), verdict, note])
        return head, rows

    def blanks(self) -> dict[str, list[dict[str, Any]]]:
        """Return by sentence its predictions: the first, the last and some evenly spaced between."""
        sentences: dict[str, list[dict[str, Any]]] = {}
        for row in self.facts.mask_predictions:
            sentences.setdefault(row["sentence"], []).append(row)
        places = {name: np.linspace(0, len(rows) - 1, min(len(rows), _FRAMES)) for name, rows in sentences.items()}
        return {name: [rows[round(place)] for place in places[name]] for name, rows in sentences.items()}


def _verdict(conclusion: dict[str, Any]) -> tuple[str, list[str]]:
    """Return who wins in words, of the encoder alone and combined if they differ, and the columns of the winners."""
    verdicts = {arm: conclusion[arm].get("verdict") for arm in ("encoder", "combined") if arm in conclusion}
    said = {"better": "this encoder", "worse": "the opponent", "not shown": "not clear", None: "not known"}
    winners: list[str] = [arm for arm, verdict in verdicts.items() if verdict == "better"]
    if len(set(verdicts.values())) > 1:
        return f"alone: {said[verdicts['encoder']]}; combined: {said[verdicts['combined']]}", winners
    verdict = next(iter(verdicts.values()), None)
    return said[verdict], ["opponent"] if verdict == "worse" else winners


def _tile(section: TaskSection) -> tuple[str, str, str]:
    task = section.facts
    arms, titles = task.arms(), task.titles()
    notes = [f"{titles[name]} {test_score(arm)}" for name, arm in arms.items() if name != "encoder"]
    if (best := task.strongest) is not None:
        notes.append(f"strongest opponent: {titles[best]} {score(task.baselines()[best]['test'])}")
    if overlap_note := _overlap_note(section.overlaps.values()):
        notes.append(f"read in pretraining: {overlap_note}")
    return test_score(arms["encoder"]), f"{task.name}, {metric_name(task.metric)}", "; ".join(notes)


def _overlap_note(overlaps: Iterable[Overlap]) -> str:
    """Return a note if a test set of the task is flagged; else an empty string."""
    flagged = [found.share_of_rows for found in overlaps if found.flagged]
    return f"{percent(max(flagged))} of test rows in part" if flagged else ""


def _samples(pipeline: PipelineFolders, number: int) -> list[tuple[Document, list[list[str]]]]:
    """Return some held-out documents with the tokens of their first sentences, chosen by a hash of their ids."""
    if pipeline.corpus is None or pipeline.tokenizer is None:
        return []
    documents = islice(read_documents(pipeline.corpus, "validation"), _CONSIDERED_DOCUMENTS)
    long_enough = [document for document in documents if len(document.sentences) >= _SENTENCES]
    chosen = sorted(long_enough, key=lambda document: unit_interval("report sample", document.id))[:number]
    tokenizer = Tokenizer.load(pipeline.tokenizer)
    return [
        (one, [list(tokenizer.tokens(tokenizer.encode(sentence))) for sentence in one.sentences[:_SENTENCES]])
        for one in chosen
    ]


def _flat(content: Any, key: str = "") -> list[tuple[str, Any]]:
    if not isinstance(content, dict):
        return [(key, content)]
    return [pair for name, value in content.items() for pair in _flat(value, f"{key}.{name}" if key else name)]
