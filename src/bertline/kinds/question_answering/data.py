"""Train, dev and test splits of a question answering task, read from SQuAD JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bertline.foundation.errors import DataError
from bertline.kinds.question_answering.config import QuestionAnsweringTaskConfig
from bertline.tasks.bad_rows import BadRow, BadRows, require_whole_characters
from bertline.tasks.decoded_files import NO_OPTIONS, beginning_of, decoded_text
from bertline.tasks.source_files import read_splits, same_text
from bertline.tasks.stored_rows import BuiltTask, QuestionRows, read_rows
from bertline.tasks.table_source import JSON_LINES, read_records


def built_task(name: str, config: QuestionAnsweringTaskConfig) -> BuiltTask:
    """Read the files, cut missing splits from train by article, and shuffle train.

    A train question whose context also occurs in dev or test, or a dev question whose context also occurs in test, is
    dropped and counted, so that no context is scored after training on it.

    Raises:
        DataError: The data is invalid. The message names file, article and question, the problem and how to fix it.
    """
    source = config.source
    splits, dropped = read_splits(
        source,
        config,
        lambda file, bad_rows: read_squad(file, bad_rows, may_move=source.on_bad_row == "skip"),
        kept_together=lambda row: row.title,
        same=lambda row: same_text([row.context]),
        name="context",
    )
    return BuiltTask(
        splits={split: QuestionRows.of(rows) for split, rows in splits.items()},
        dropped=dropped,
        # Who never answers is always right there.
        targets={split: {()} for split, rows in splits.items() if rows and not any(row.answers for row in rows)},
        more={
            "articles": {split: len({row.title for row in rows}) for split, rows in splits.items()},
            "without_answer": {split: sum(not row.answers for row in rows) for split, rows in splits.items()},
        },
    )


stored_rows = partial(read_rows, rows_class=QuestionRows)
"""Reads a split that the stage has written."""


MOVED = "answer_moved"
"""Key under which answers with a corrected start are counted. The question is kept."""


class Question(NamedTuple):
    """A question on a context, with all texts that count as its answer."""

    id: str
    title: str
    question: str
    context: str
    answers: list[str]
    """Gold answers; empty if the context does not answer the question."""
    starts: list[int]
    """Start of each answer, in characters of the context."""


def read_squad(path: Path, bad_rows: BadRows, *, may_move: bool) -> list[Question]:
    """Read the questions of a SQuAD file of either version, plain or `.gz`: articles, or JSONL or Parquet of questions.

    Args:
        path: The file.
        bad_rows: Collects invalid questions, and counts moved answers.
        may_move: Whether an answer that is not at its `answer_start` is moved to where it occurs in the context, if it
            occurs exactly once.

    Raises:
        DataError: The file is not SQuAD JSON, or a question is invalid and invalid questions are errors. The message
            names file, article and question.
    """
    questions: list[Question] = []
    seen: set[str] = set()
    for where, title, context, qa in _questions(path, bad_rows):
        try:
            question, moved = _question(title, context, qa, seen, may_move=may_move)
        except BadRow as bad:
            bad_rows.report(bad.reason, f"{where}: {bad}. Fix it or remove the question.")
            continue
        seen.add(question.id)
        questions.append(question)
        bad_rows.dropped[MOVED] += moved
    return questions


def _questions(path: Path, bad_rows: BadRows) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield, for each question, its place (for messages), its article's title, its context and its JSON object."""
    if (flat := _flat_format(path)) is not None:
        yield from _flat_questions(path, flat, bad_rows)
        return
    content = _json(path)
    articles = content.get("data") if isinstance(content, dict) else None
    if not isinstance(articles, list):
        raise DataError(f'{path}: expected SQuAD JSON, {{"data": [articles]}}, but found no list "data" in it.')
    for number, article in enumerate(articles, start=1):
        title = article.get("title") if isinstance(article, dict) else None
        # Annotation tools omit titles; a number keeps the articles apart.
        title = title if isinstance(title, str) and title.strip() else f"article {number}"
        for paragraph in _list(article, "paragraphs", f"{path}, article {title!r}"):
            context = paragraph.get("context") if isinstance(paragraph, dict) else None
            for qa in _list(paragraph, "qas", f"{path}, article {title!r}, a paragraph"):
                identity = qa.get("id") if isinstance(qa, dict) else None
                yield f"{path}, article {title!r}, question {identity!r}", title, context, qa


def _flat_format(path: Path) -> Literal["jsonl", "parquet"] | None:
    """Return the format of a file with a question a row, as `datasets` writes SQuAD; None for a file of articles."""
    start = beginning_of(path, "utf-8") if path.is_file() else None
    if start is None or start.is_parquet:
        return None if start is None else "parquet"
    try:
        first = json.loads(next((line for line in start.lines if line.strip()), ""))
    except (ValueError, RecursionError):
        return None
    return "jsonl" if isinstance(first, dict) and "context" in first else None


def _flat_questions(
    path: Path, kind: Literal["jsonl", "parquet"], bad_rows: BadRows
) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield what `_questions` does. Questions without a title have one for each context, without an id their line."""
    titles: dict[str, str] = {}
    for record in read_records(path, replace(JSON_LINES, format=kind), bad_rows):
        row = record.values
        answers, context, title = row.get("answers"), row.get("context"), row.get("title")
        if isinstance(answers, dict) and isinstance(answers.get("text"), list):
            # A missing start is reported as the question's.
            pairs = zip_longest(answers["text"], answers.get("answer_start") or [])
            answers = [{"text": text, "answer_start": start} for text, start in pairs]
        if not isinstance(title, str) or not title.strip():
            title = titles.setdefault(str(context), f"context {len(titles) + 1}")
        qa = {"is_impossible": answers == [], **row, "id": row.get("id", record.where), "answers": answers}
        yield f"{path}:{record.line}, question {qa['id']!r}", title, context, qa


def _list(value: Any, key: str, where: str) -> list[Any]:
    inner = value.get(key) if isinstance(value, dict) else None
    if not isinstance(inner, list):
        raise DataError(f'{where}: expected a list "{key}", as SQuAD has it.')
    return inner


def _json(path: Path) -> Any:
    try:
        return json.loads(decoded_text(path, "utf-8", NO_OPTIONS))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}:{error.colno} is not JSON ({error.msg}). Is the file whole?") from error


def _question(title: str, context: Any, qa: Any, seen: set[str], *, may_move: bool) -> tuple[Question, int]:
    """Return the question, and how many of its answers were moved."""
    if not isinstance(qa, dict) or not isinstance(qa.get("id"), str | int):
        raise BadRow("missing_key", 'it has no "id"')
    require_whole_characters([title, context, qa])
    identity = str(qa["id"])
    if identity in seen:
        raise BadRow("duplicate_id", "another question of the file has the same id")
    for name, text in (("context", context), ("question", qa.get("question"))):
        if not isinstance(text, str):
            raise BadRow("missing_key", f'it has no "{name}"')
        if not text.strip():
            raise BadRow(f"empty_{name}", f"its {name} is empty")
    impossible = qa.get("is_impossible", False)
    answers = qa.get("answers", [] if impossible else None)
    if not isinstance(answers, list):
        raise BadRow("missing_key", 'it has no list "answers"')
    if impossible and answers:
        raise BadRow("impossible_with_answers", "it is marked is_impossible and has answers all the same")
    if not impossible and not answers:
        raise BadRow("no_answer", "it has no answers and is not marked is_impossible (SQuAD 2.0), so none can be right")
    texts, starts, moved = [], [], 0
    for answer in answers:
        text, start = _answer(answer)
        place = start if context.startswith(text, start) else _found_place(context, text, start, may_move)
        texts.append(text)
        starts.append(place)
        moved += place != start
    return Question(identity, title, qa["question"], context, texts, starts), moved


def _answer(answer: Any) -> tuple[str, int]:
    text = answer.get("text") if isinstance(answer, dict) else None
    start = answer.get("answer_start") if isinstance(answer, dict) else None
    if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
        raise BadRow("missing_key", 'an answer lacks "text" or "answer_start"')
    if not text.strip():
        raise BadRow("empty_answer", "an answer is empty")
    if start < 0:
        raise BadRow("answer_not_in_context", f"answer_start of {text!r} is {start}; places count from 0")
    return text, start


def _found_place(context: str, text: str, start: int, may_move: bool) -> int:
    """Return the start of the answer if it occurs exactly once in the context and may be moved; else raise `BadRow`."""
    first = context.find(text)
    if may_move and first >= 0 and context.find(text, first + 1) < 0:
        return first
    stands = context[start : start + len(text)]
    hint = "it stands nowhere in the context" if first < 0 else f"it stands at {first}"
    raise BadRow(
        "answer_not_in_context",
        f"the answer {text!r} should stand at answer_start {start}, where the context has {stands!r}; {hint} "
        "(starts count characters, not bytes)",
    )
