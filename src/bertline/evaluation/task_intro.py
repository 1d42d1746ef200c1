"""What a task asks for, in a sentence, and one of its rows as an example."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq

from bertline.evaluation.error_html import CHARACTERS
from bertline.evaluation.facts import TaskFacts
from bertline.evaluation.formatting import escape, number_of, shortened
from bertline.evaluation.html import paragraph
from bertline.kinds.registry import kind_part
from bertline.tasks.storage import COLLECTION

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
    about = _SOURCES.get(task.source) or kind_part(task.result["task_kind"], "report").about(task.result["labels"])
    return paragraph(about) + _example(task)


def _example(task: TaskFacts) -> str:
    path = task.folder / f"{_SPLIT}.parquet"
    first = next(pq.ParquetFile(path).iter_batches(batch_size=1), None) if path.exists() else None
    if first is None or first.num_rows == 0:
        return ""
    row: dict[str, Any] = first.to_pylist()[0]
    lines = [
        f"<p><small>{name}</small> {_value(task, key, row)}</p>"
        for key, name in _COLUMNS.items()
        if row.get(key) is not None
    ]
    return f"<blockquote>{''.join(lines)}<footer class='soft'>An example, the first row of train</footer></blockquote>"


def _value(task: TaskFacts, key: str, row: dict[str, Any]) -> str:
    value = row[key]
    if key == "words":
        pairs = zip(value, row["tags"], strict=True)
        return " ".join(_tagged(word, tag) for word, tag in pairs)
    if key == "labels":
        return escape(shortened(_label(task, row), CHARACTERS))
    if key == "document_ids":
        return escape(shortened(_document(task, value), CHARACTERS))
    if key == "answers" and not value:
        return "none"
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
    found = pq.read_table(path, filters=[("ids", "in", ids[:1])]).to_pylist() if path.exists() else []
    return " ".join(filter(None, (found[0]["titles"], found[0]["texts"]))) if found else ", ".join(ids)
