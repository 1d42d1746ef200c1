"""Baselines for question answering: the context's first sentence, and always no answer."""

from __future__ import annotations

import numpy as np

from bertline.corpus.sentences import split_sentences
from bertline.kinds.question_answering.model import AnswerPredictions
from bertline.sweep.baselines.base import Baseline, BaselineInputs
from bertline.tasks.stored_rows import QuestionRows


def baselines(inputs: BaselineInputs) -> list[Baseline]:
    """Return the first-sentence baseline (within the first line) and, if train has unanswerable questions, the
    no-answer baseline."""
    made = [inputs.baseline("first_sentence", "first sentence of the context", _first_sentences)]
    if not all(inputs.train.answers):
        made.append(
            inputs.baseline("no_answer", "always no answer", lambda rows: _answers([""] * len(rows), [0] * len(rows)))
        )
    return made


def _first_sentences(rows: QuestionRows) -> AnswerPredictions:
    # Questions on the same context need not be adjacent, so each distinct context is split once, in advance.
    first = {context: next(iter(split_sentences(context.strip().split("\n")[0])), "") for context in set(rows.contexts)}
    texts = [first[context] for context in rows.contexts]
    return _answers(texts, [context.find(text) for context, text in zip(rows.contexts, texts, strict=True)])


def _answers(texts: list[str], starts: list[int]) -> AnswerPredictions:
    """Return predictions with equal scores for the answer and for no answer: without a threshold, the text decides."""
    nothing = np.zeros(len(texts))
    return AnswerPredictions(texts, np.array(starts, dtype=np.int64), nothing, nothing, nothing)
