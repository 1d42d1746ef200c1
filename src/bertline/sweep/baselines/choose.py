"""Choice of the baselines for a kind of task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from bertline.finetuning.task_kind import TaskKind
from bertline.kinds.classification.model import Classification
from bertline.kinds.classification.multi_label import MultiLabel
from bertline.kinds.fill_mask.model import FillMask
from bertline.kinds.question_answering.model import QuestionAnswering
from bertline.kinds.regression.model import Regression
from bertline.kinds.reranking.model import Reranking
from bertline.kinds.retrieval.model import Retrieval
from bertline.kinds.summarisation.model import Summarisation
from bertline.kinds.token_classification.model import TokenClassification
from bertline.sweep.baselines.answers import answer_baselines
from bertline.sweep.baselines.base import Baseline
from bertline.sweep.baselines.encoder_vectors import FrozenEncoder
from bertline.sweep.baselines.fill_mask import fill_mask_baselines
from bertline.sweep.baselines.ngrams import UNITS, Unit
from bertline.sweep.baselines.numbers import mean_baseline, ngram_ridge, pair_ridge
from bertline.sweep.baselines.search import candidate_overlap, first_stage, tuned_bm25
from bertline.sweep.baselines.summaries import summary_baselines
from bertline.sweep.baselines.tags import tagging_baselines
from bertline.sweep.baselines.text import majority, ngram_baseline, pair_baseline
from bertline.sweep.baselines.vectors import (
    Name,
    candidates_baseline,
    linear_baseline,
    search_baseline,
    tagging_baseline,
)
from bertline.sweep.baselines.window_tagger import window_tagger
from bertline.tasks.storage import SplitName
from bertline.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """Inputs of a baseline."""

    kind: TaskKind[Any, Any, Any]
    train: Any
    dev: Any
    tests: Mapping[SplitName, Any]
    tokenizer: Tokenizer | None = None
    """The encoder's tokenizer, for tasks that are scored token by token, which have no baseline without it."""
    encoder: FrozenEncoder | None = None
    """The encoder before fine-tuning; without it there are no baselines on its vectors."""


Method = Callable[[Given], list[Baseline]]


def methods_of(kind: TaskKind[Any, Any, Any], *, pairs: bool) -> dict[str, Method]:
    """Return the simple methods for a kind of task, each of which gives a list of baselines; none depends on a seed.

    Args:
        kind: Kind of the task.
        pairs: Whether the rows are pairs of texts.
    """
    match kind:
        case Classification() | MultiLabel():
            methods = {"majority": _one(majority)}
            methods |= {f"{unit}_ngrams": _one(partial(_ngrams, unit=unit)) for unit in _units(pairs)}
            return methods | ({"pair_features": _one(pair_baseline)} if pairs else {})
        case Regression():
            methods = {"mean": _one(lambda _, *rows: mean_baseline(*rows))}
            methods |= {f"{unit}_ngrams": _one(partial(_ngram_ridge, unit=unit)) for unit in _units(pairs)}
            return methods | ({"pair_features": _one(pair_ridge)} if pairs else {})
        case TokenClassification():
            return {
                "most_frequent_tag": lambda given: tagging_baselines(kind, given.train, given.dev, given.tests),
                "window_tagger": lambda given: window_tagger(kind, given.train, given.dev, given.tests),
            }
        case QuestionAnswering():
            return {"answers": lambda given: answer_baselines(given.train, given.dev, given.tests)}
        case Retrieval():
            return {"bm25": lambda given: [tuned_bm25(kind, given.dev, given.tests)]}
        case Reranking():
            return {
                "bm25": lambda given: [first_stage(kind, given.dev, given.tests)],
                "pair_features": lambda given: candidate_overlap(kind, given.train, given.dev, given.tests),
            }
        case Summarisation():
            return {"first_sentences": lambda given: summary_baselines(given.dev, given.tests)}
        case FillMask():
            return {"unigram": _unigram}
        case _:
            return {}


def baselines_of(
    kind: TaskKind[Any, Any, Any],
    train: Any,
    dev: Any,
    tests: Mapping[SplitName, Any],
    tokenizer: Tokenizer | None = None,
    encoder: FrozenEncoder | None = None,
) -> list[Baseline]:
    """Return the baselines of a task, each with predictions for dev and every test split; deterministic."""
    given = Given(kind=kind, train=train, dev=dev, tests=tests, tokenizer=tokenizer, encoder=encoder)
    methods = methods_of(kind, pairs=getattr(train, "text_pairs", None) is not None)
    return [baseline for method in methods.values() for baseline in method(given)] + _of_vectors(given)


def _of_vectors(given: Given) -> list[Baseline]:
    """Return the baselines on the encoder's vectors, for kinds of task that use vectors of texts or words."""
    names: tuple[Name, ...] = ("static_embeddings", "frozen_encoder")
    rows = given.train, given.dev, given.tests
    if given.encoder is None:
        return []
    match given.kind:
        case Classification() | MultiLabel() | Regression():
            return [linear_baseline(name, given.encoder, given.kind, *rows) for name in names]
        case Retrieval():
            return [search_baseline(name, given.encoder, given.kind, *rows) for name in names]
        case Reranking():
            return [candidates_baseline(name, given.encoder, given.kind, *rows) for name in names]
        case TokenClassification():
            return [made for name in names for made in tagging_baseline(name, given.encoder, given.kind, *rows)]
        case _:
            return []


def _units(pairs: bool) -> tuple[Unit, ...]:
    """Return the units of n-grams; only words for pairs, where each text alone says little about the label."""
    return ("word",) if pairs else UNITS


def _one(make: Callable[..., Baseline]) -> Method:
    return lambda given: [make(given.kind, given.train, given.dev, given.tests)]


def _ngrams(kind: Any, train: Any, dev: Any, tests: Any, *, unit: Any) -> Baseline:
    return ngram_baseline(kind, unit, train, dev, tests)


def _ngram_ridge(kind: Any, train: Any, dev: Any, tests: Any, *, unit: Any) -> Baseline:
    return ngram_ridge(kind, unit, train, dev, tests)


def _unigram(given: Given) -> list[Baseline]:
    if given.tokenizer is None:
        return []
    assert isinstance(given.kind, FillMask)
    return fill_mask_baselines(given.kind, given.train, given.dev, given.tests, given.tokenizer)
