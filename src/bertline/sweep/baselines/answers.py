"""Baselines of question answering: the context's first sentence, and that there is no answer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bertline.corpus.sentences import split_sentences
from bertline.finetuning.kinds.question_answering import AnswerPredictions
from bertline.sweep.baselines.base import Baseline
from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import QuestionRows


def answer_baselines(train: QuestionRows, dev: QuestionRows, tests: Mapping[SplitName, QuestionRows]) -> list[Baseline]:
    """The first sentence, as far as its line goes; where train has questions without an answer, also no answer."""
    scored = {"dev": dev, **tests}
    baselines = [
        Baseline(
            name="first_sentence",
            title="first sentence of the context",
            predictions={split: _first_sentences(rows) for split, rows in scored.items()},
        )
    ]
    if not all(train.answers):
        baselines.append(
            Baseline(
                name="no_answer",
                title="always no answer",
                predictions={split: _answers([""] * len(rows), [0] * len(rows)) for split, rows in scored.items()},
            )
        )
    return baselines


def _first_sentences(rows: QuestionRows) -> AnswerPredictions:
    # Questions on one context stand together in no order that helps, so each distinct context is split once.
    first = {context: next(iter(split_sentences(context.strip().split("\n")[0])), "") for context in set(rows.contexts)}
    texts = [first[context] for context in rows.contexts]
    return _answers(texts, [context.find(text) for context, text in zip(rows.contexts, texts, strict=True)])


def _answers(texts: list[str], starts: list[int]) -> AnswerPredictions:
    """Equal scores for an answer and for none: without a threshold, the text is what is said."""
    nothing = np.zeros(len(texts))
    return AnswerPredictions(texts, np.array(starts, dtype=np.int64), nothing, nothing, nothing)
