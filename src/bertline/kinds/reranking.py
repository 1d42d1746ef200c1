"""Re-ranking with a cross-encoder: query and candidate are encoded together and get one logit (arXiv 1901.04085)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertline.corpus.tables import TableLayout, TableRow, parsed_records, value_in
from bertline.demo.config import DocsSearchSourceConfig
from bertline.demo.docstrings import ModuleDocs
from bertline.encoding.sequences import (
    INDICES,
    Epochs,
    Sequences,
    any_of,
    encode_texts,
    length_sorted_batches,
    outputs_of,
    tensors,
    unit,
)
from bertline.foundation.bad_rows import BadRow, BadRows
from bertline.foundation.errors import DataError
from bertline.foundation.seeds import generator
from bertline.kinds.base import Batch, Calibration, LossOptions, Statistics, TaskKind
from bertline.kinds.inputs import require_several, require_texts, row_ids
from bertline.kinds.usage import Usage
from bertline.tasks.cells import one_line
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.metrics import ranking
from bertline.tasks.search_data import relevance_of, search_splits
from bertline.tasks.source_config import AnswersSourceConfig, BeirSourceConfig
from bertline.tasks.source_files import read_splits, same_text
from bertline.tasks.stored_rows import BuiltTask, CandidateRows, Documents, QueryRows, SplitName

if TYPE_CHECKING:
    from bertline.kinds.base import Baseline, BaselineInputs, Machine, TaskPredictor, Tensor, Tokenizer, nn
    from bertline.tasks.bm25 import Bm25

CandidateScores = list[NDArray[np.float32]]
"""For each query, the logits of its candidates, in their order; or their first-stage scores."""
MOST_CANDIDATES = 100_000
"""Maximum number of candidates that are read from the first rows of train, always all candidates of a query."""
# Range of logits below which candidates differ only by rounding.
_DEGENERATE_SPREAD = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class RerankingTaskConfig(BaseTaskConfig):
    """Re-ranking of candidates; query and candidate are encoded together (cross-encoder)."""

    kind: Literal["reranking"]
    source: AnswersSourceConfig | DocsSearchSourceConfig | BeirSourceConfig
    num_candidates: int
    """Number of candidates per query from a collection: the first BM25 results. A table of answers has its own."""
    num_negatives: int
    """Number of negatives per positive candidate in training; 0 uses all."""
    metric: Literal["map", "mrr", "ndcg@10"]
    """Metric on dev that selects trials; higher is better."""


@dataclass(frozen=True, slots=True)
class QuestionCandidates:
    """A question of a table with all its candidates, in file order."""

    text: str
    ids: list[str]
    """File and first line of the row of each candidate, such as `train.csv:17`."""
    answers: list[str]
    relevances: list[int]

    @property
    def id(self) -> str:
        return self.ids[0]


@dataclass(frozen=True, slots=True)
class EncodedCandidates:
    """Sequences `[CLS] query [SEP] candidate [SEP]` for each candidate of each query, grouped by query."""

    sequences: Sequences
    relevant: NDArray[np.bool_]
    """Whether the candidate of each sequence is relevant."""
    offsets: NDArray[np.int64]
    """Offsets [N + 1]: the sequences of query n are offsets[n] up to offsets[n + 1]."""


class Ranked(NamedTuple):
    """Candidate in a ranking."""

    number: int
    """Index among the given candidates, from 0."""
    text: str
    score: float


class Reranking(TaskKind[CandidateRows, EncodedCandidates, CandidateScores]):
    """Re-ranks the candidates of each query. Predictions are logits, one array per query."""

    config_class = RerankingTaskConfig
    rows_class = CandidateRows
    config: RerankingTaskConfig
    head = "pair"
    outputs = ("relevance",)
    independent = True
    score_names = ("map", "mrr", "ndcg@10")
    file_columns = (("query", "text"), ("candidates", "texts"))
    answers = (Ranked,)
    output_schema = pa.schema([("order", pa.list_(pa.int64())), ("scores", pa.list_(pa.float64()))])
    asks = "Re-ranking: put the candidates that answer a query before the others."

    @staticmethod
    def build(name: str, config: RerankingTaskConfig, modules: Iterable[ModuleDocs] = ()) -> BuiltTask:
        from bertline.tasks.bm25 import Bm25

        if isinstance(config.source, AnswersSourceConfig):
            return _answers_task(name, config, config.source)
        source = search_splits(name, config, config.source, modules)
        assert source.collection is not None  # a search has one
        texts = source.collection.texts_read()
        bm25 = Bm25(texts)
        documents, k = source.collection, config.num_candidates
        splits = {
            split: _candidates_of(rows, documents, texts, bm25, k, adds_missed=split == "train")
            for split, rows in source.splits.items()
        }
        return BuiltTask(splits={**splits}, dropped=source.dropped, targets=_targets(splits), more=source.more)

    # ---- the model

    def encode(self, rows: CandidateRows, tokenizer: Tokenizer) -> EncodedCandidates:
        sequences = encode_texts(*_pairs(rows), tokenizer, max_length=self.config.max_length)
        relevant = np.array([value > 0 for values in rows.relevances for value in values], dtype=np.bool_)
        return EncodedCandidates(sequences, relevant, np.cumsum([0, *map(len, rows.candidates)]))

    def num_cut(self, encoded: EncodedCandidates) -> int:
        return int(any_of(encoded.sequences.cut, encoded.offsets).sum())

    def training_batches(self, encoded: EncodedCandidates, *, batch_size: int, seed: int) -> Epochs:
        """Return batches of all relevant candidates and, for each, up to `num_negatives` irrelevant ones of its query,
        which are redrawn each epoch; 0 takes all of them."""
        most = self.config.num_negatives
        groups: list[tuple[NDArray[np.int64], NDArray[np.int64], int]] = []
        for places in np.split(np.arange(len(encoded.relevant)), encoded.offsets[1:-1]):
            right, wrong = places[encoded.relevant[places]], places[~encoded.relevant[places]]
            num_drawn = len(wrong) if most == 0 else min(len(wrong), most * len(right))
            groups.append((right, wrong, num_drawn))

        def batches(epoch: int) -> Iterator[Batch]:
            random = generator(seed, "negatives", epoch)
            drawn: list[NDArray[np.int64]] = []
            for right, wrong, num_drawn in groups:
                drawn += [right, random.choice(wrong, num_drawn, replace=False) if len(wrong) else wrong]
            chosen = np.concatenate(drawn)

            def make(indices: NDArray[np.integer]) -> Batch:
                pairs = chosen[indices]
                return {
                    **encoded.sequences.batch(pairs),
                    **tensors(**{INDICES: pairs, "relevant": encoded.relevant[pairs].astype(np.float32)}),
                }

            lengths, epoch_seed = encoded.sequences.lengths[chosen], int(random.integers(2**62))
            yield from length_sorted_batches(lengths, make, batch_size=batch_size, seed=epoch_seed)

        return Epochs(sum(len(right) + num_drawn for right, _, num_drawn in groups), batch_size, batches)

    def hard_loss(self, model: nn.Module, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the binary cross-entropy of each pair (arXiv 1901.04085, equation 1)."""
        import torch.nn.functional as F

        return F.binary_cross_entropy_with_logits(outputs[:, 0].float(), options.smoothed(batch["relevant"]))

    def predict(self, model: nn.Module, encoded: EncodedCandidates, machine: Machine) -> CandidateScores:
        scores = outputs_of(model, encoded.sequences, machine, 1)[:, 0]
        return np.split(scores, encoded.offsets[1:-1]) if len(encoded.offsets) > 1 else []

    def first_stage(self, rows: CandidateRows) -> CandidateScores:
        return [np.array(scores, dtype=np.float32) for scores in rows.first_scores]

    def statistics(self, rows: CandidateRows, predictions: CandidateScores, calibration: Calibration) -> Statistics:
        """Return average precision, reciprocal rank and nDCG@10, [N, 3]. Relevant documents missing from the candidates
        count as not found."""
        values = np.zeros((len(rows), len(self.score_names)))
        for row, scores in enumerate(predictions):
            judged = rows.all_relevances[row]
            order = ranking.trec_order(rows.candidate_ids[row], scores)
            ranked = [rows.relevances[row][place] for place in order]
            values[row] = (
                ranking.ranked_precision(ranked, ranking.num_relevant(judged)),
                ranking.reciprocal_rank(ranked),
                ranking.ndcg(ranked, judged, 10),
            )
        return values

    def table(self, rows: CandidateRows, predictions: CandidateScores, calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`: `gold` has the relevant candidates, `predicted` the top one; `correct` is the task's
        metric."""
        from scipy.special import expit

        first = [
            ranking.trec_order(ids, scores)[:1] for ids, scores in zip(rows.candidate_ids, predictions, strict=True)
        ]
        return pa.table(
            {
                "id": rows.ids,
                "query": rows.queries,
                "gold": [
                    " | ".join(text for text, value in zip(texts, values, strict=True) if value > 0)
                    for texts, values in zip(rows.candidates, rows.relevances, strict=True)
                ],
                "predicted": ["".join(texts[n] for n in of) for texts, of in zip(rows.candidates, first, strict=True)],
                "score": [float(expit(scores[of]).sum()) for scores, of in zip(predictions, first, strict=True)],
                "correct": self.row_scores(rows, predictions, calibration),
            }
        )

    def details(self, rows: CandidateRows, predictions: CandidateScores, calibration: Calibration) -> dict[str, Any]:
        return {"before": self.scores(self.statistics(rows, self.first_stage(rows), calibration))}

    def is_degenerate(self, rows: CandidateRows, predictions: CandidateScores, calibration: Calibration) -> bool:
        scores = np.concatenate([np.zeros(0, dtype=np.float32), *predictions])
        return len(scores) > 1 and float(np.ptp(scores)) < _DEGENERATE_SPREAD

    # ---- baselines, answers to users, report

    def baselines(self, inputs: BaselineInputs) -> list[Baseline]:
        """Return the first stage, a linear model on what query and candidate share, and rankings by vectors."""
        from bertline.baselines.vectors import TextVectors, rankings_by_vectors

        def cosines(vectors: TextVectors, rows: CandidateRows) -> CandidateScores:
            return [
                unit(vectors(texts)) @ unit(vectors([query]))[0] if texts else np.zeros(0, dtype=np.float32)
                for query, texts in zip(rows.queries, rows.candidates, strict=True)
            ]

        by_vectors = rankings_by_vectors(inputs, lambda vectors, several: [cosines(vectors, rows) for rows in several])
        return [inputs.baseline("bm25", "BM25", self.first_stage), *_candidate_overlap(inputs), *by_vectors]

    def serve(
        self, predictor: TaskPredictor, queries: Sequence[str], candidates: Sequence[Sequence[str]]
    ) -> list[list[Ranked]]:
        """Rank the candidates of each query, best first; ties keep the given order.

        Raises:
            DataError: The number of candidate lists differs from the number of queries.
        """
        asked, several = require_texts(queries, "queries"), require_several(candidates, "candidates")
        offered = [require_texts(texts, f"candidates[{index}]") for index, texts in enumerate(several)]
        if len(asked) != len(offered):
            raise DataError(f"{len(asked)} queries and {len(offered)} candidates; expected a list for each query.")
        if not any(offered):
            return [[] for _ in asked]
        nothing = [[0] * len(texts) for texts in offered]
        ids = [row_ids(len(texts)) for texts in offered]
        read = map(one_line, asked), ids, ([*map(one_line, texts)] for texts in offered)
        rows = zip(row_ids(len(asked)), *read, nothing, nothing, nothing, strict=True)
        predictions = predictor.predictions(CandidateRows.of(rows))
        return [
            [Ranked(int(i), texts[i], float(scores[i])) for i in np.argsort(-scores, kind="stable")]
            for texts, scores in zip(offered, predictions, strict=True)
        ]

    def file_output(self, predicted: list[Ranked]) -> dict[str, Any]:
        return {"order": [each.number for each in predicted], "scores": [each.score for each in predicted]}

    def usage(self, calibration: Calibration, *, pair: bool) -> Usage:
        return Usage(
            what="Puts candidates for a query into a better order; reads query and candidate together.",
            tag="text-ranking",
            pipeline=True,
            snippets=(
                'import bertline\n\nbertline.load("NAME").predict(["a question"], [["A candidate.", "Another one."]])',
                "from sentence_transformers import CrossEncoder\n\n"
                'CrossEncoder("NAME").rank("a question", ["A candidate.", "Another one."])',
            ),
            limits=("Scores order the candidates of one query; between queries they mean nothing.",),
        )


def _candidates_of(
    queries: QueryRows, documents: Documents, texts: Sequence[str], bm25: Bm25, k: int, *, adds_missed: bool
) -> CandidateRows:
    """Return the first k BM25 results of each query. `adds_missed` appends the relevant documents that BM25 missed."""
    numbers = {identity: number for number, identity in enumerate(documents.ids)}
    rows = []
    for identity, query, judged_ids, relevances in zip(
        queries.ids, queries.queries, queries.document_ids, queries.relevances, strict=True
    ):
        judged = dict(zip(judged_ids, relevances, strict=True))
        scores = bm25.scores(query)
        chosen = bm25.best(query, k)[0].tolist()
        if adds_missed:
            relevant = [numbers[each] for each, value in judged.items() if value > 0 and each in numbers]
            chosen += sorted(set(relevant) - set(chosen))
        ids = [documents.ids[number] for number in chosen]
        first_scores = [float(scores[number]) for number in chosen]
        of_ids = [judged.get(each, 0) for each in ids]
        rows.append(
            (identity, query, ids, [texts[number] for number in chosen], of_ids, first_scores, [*judged.values()])
        )
    return replace(CandidateRows.of(rows), clusters=queries.clusters)


def _answers_task(name: str, config: RerankingTaskConfig, source: AnswersSourceConfig) -> BuiltTask:
    from bertline.tasks.bm25 import Bm25

    texts: set[str] = set()

    def read(path: Path, source: AnswersSourceConfig, bad_rows: BadRows) -> list[QuestionCandidates]:
        questions = read_answers(path, source, bad_rows)
        texts.update(text for each in questions for text in each.answers)
        # Where no candidate is right, no order is better than another; trec_eval skips those questions, too.
        right = [each for each in questions if ranking.num_relevant(each.relevances)]
        bad_rows.dropped["question_without_right_answer"] += len(questions) - len(right)
        return right

    splits, dropped = read_splits(config, read, same=lambda row: same_text([row.text]), name="question")
    if not any(splits.values()):
        raise DataError(f"tasks.{name}: no question has a right answer (a label above 0 in {source.label_column!r}).")
    # Document frequencies come from the candidates of all splits; labels are not used.
    bm25, numbers = Bm25(sorted(texts)), {text: number for number, text in enumerate(sorted(texts))}

    def stored(each: QuestionCandidates) -> list[Any]:
        scores = bm25.scores(each.text)[np.array([numbers[text] for text in each.answers])].tolist()
        return [each.id, each.text, each.ids, each.answers, each.relevances, scores, each.relevances]

    rows = {split: CandidateRows.of(map(stored, questions)) for split, questions in splits.items()}
    return BuiltTask(splits={**rows}, dropped=dropped, targets=_targets(rows))


def _targets(splits: Mapping[SplitName, CandidateRows]) -> dict[SplitName, set[tuple[str, ...]]]:
    return {
        split: {("right" if value > 0 else "wrong",) for values in rows.relevances for value in values}
        for split, rows in splits.items()
    }


def read_answers(path: Path, source: AnswersSourceConfig, bad_rows: BadRows) -> list[QuestionCandidates]:
    """Read the questions of a `.csv` or `.tsv` file with a header, in the order of their first row.

    With `quoting`, quoted fields may contain separators and line breaks. A field that begins with two backquotes or has
    quotes only in its middle is plain text.

    Raises:
        DataError: Quotes are unbalanced, the encoding is wrong, or a row is invalid and invalid rows are errors. The
            message names the file and line.
    """
    kind: Literal["csv", "tsv"] = "tsv" if ".tsv" in path.suffixes else "csv"
    layout = TableLayout(kind, header=True, quoting=source.quoting, encoding=source.encoding)
    questions: dict[str, QuestionCandidates] = {}

    def parse(row: TableRow) -> None:
        options = ("query_column", "text_column", "label_column")
        query, text, label = (one_line(value_in(row, getattr(source, name), f"source.{name}")) for name in options)
        if not query or not text:
            column = source.text_column if query else source.query_column
            raise BadRow("empty_text", f"the text in column {column!r} is empty")
        relevance = relevance_of(label)
        if relevance is None:
            raise BadRow("bad_label", f"the label is {label!r}; expected 0, 1 or another whole number")
        question = questions.setdefault(query, QuestionCandidates(query, [], [], []))
        question.ids.append(row.where)
        question.answers.append(text)
        question.relevances.append(relevance)

    parsed_records(path, layout, bad_rows, parse)
    if not questions:
        raise DataError(f"{path} has no rows that can be used.")
    return [*questions.values()]


def _candidate_overlap(inputs: BaselineInputs) -> list[Baseline]:
    """Fit logistic regression on what query and candidate share and on the first stage's score and rank.

    The list is empty if all candidates of train are relevant, or none is.
    """
    from bertline.baselines.linear import REGRESSIONS, Grid, linear_baseline
    from bertline.linear.features import PairOverlap, rows_up_to, standardised
    from bertline.linear.model import split_by_row

    read = rows_up_to(inputs.train, [len(candidates) for candidates in inputs.train.candidates], MOST_CANDIDATES)
    relevant = np.array([value > 0 for values in read.relevances for value in values], dtype=np.int64)
    if len(np.unique(relevant)) < 2:
        return []
    overlap = standardised(PairOverlap.fitted(*_pairs(read)), *_pairs(read))

    def features(rows: CandidateRows) -> NDArray[np.float64]:
        return np.concatenate([overlap(*_pairs(rows)), _first_scores(rows)], axis=1)

    def scores(probabilities: NDArray[np.float32], rows: CandidateRows) -> CandidateScores:
        return split_by_row(probabilities[:, 1], [len(texts) for texts in rows.candidates])

    title = "what query and candidate share, logistic regression"
    grid: Grid = {"": (features, REGRESSIONS)}
    return [linear_baseline(inputs, "pair_features", title, (read, relevant), lambda rows: grid, finished=scores)]


def _pairs(rows: CandidateRows) -> tuple[list[str], list[str]]:
    queries = [query for query, texts in zip(rows.queries, rows.candidates, strict=True) for _ in texts]
    return queries, [text for texts in rows.candidates for text in texts]


def _first_scores(rows: CandidateRows) -> NDArray[np.float64]:
    """Return [candidates, 2]: the score of the first stage relative to the largest, and -log(1 + rank), rank from 0."""
    columns = [np.zeros((0, 2))]
    for of_query in rows.first_scores:
        scores = np.array(of_query, dtype=np.float64)
        ranks = np.argsort(np.argsort(-scores, kind="stable"), kind="stable")
        best = np.abs(scores).max(initial=0.0)
        columns.append(np.stack([scores / best if best else scores, -np.log1p(ranks)], axis=1))
    return np.concatenate(columns)
