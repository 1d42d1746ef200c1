"""The arm `combined` of a retrieval task: the encoder's and BM25's rankings, merged by reciprocal rank fusion."""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bertline.foundation.files import folder_written_atomically, write_json
from bertline.kinds.retrieval import DEPTH, Found, Retrieval, bm25_of, found_by
from bertline.sweep.baseline_scores import ScoredBaseline
from bertline.sweep.bench import PlannedSweep, kind_of, test_splits
from bertline.sweep.repetitions import OUTCOME, RANKING, READING, STATISTICS, TEST, Repetition, file_of
from bertline.tasks.stored_rows import SplitName

_CONSTANTS = (5, 20, 60)
_WEIGHTS = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True, slots=True)
class RankPlaces:
    """Positions of documents in two rankings; M documents for each of N queries."""

    documents: NDArray[np.int64]
    """Document numbers [N, M], ascending and unique, apart from -1 for no document."""
    encoder: NDArray[np.float64]
    """Position of each document in the encoder's ranking [N, M], from 0; infinite if the ranking lacks it."""
    bm25: NDArray[np.float64]
    """Position of each document in BM25's ranking, likewise."""

    @classmethod
    def of(cls, encoder: NDArray[np.int64], bm25: NDArray[np.int64]) -> Self:
        """Merge rankings [N, K] and [N, L], which are padded with -1 after the last document found."""
        both = np.concatenate([encoder, bm25], axis=1)
        order = np.argsort(both, axis=1, kind="stable")  # a document's entry from the encoder precedes that from BM25
        documents = np.take_along_axis(both, order, axis=1)
        of_encoder = order < encoder.shape[1]
        places = np.where(of_encoder, order, order - encoder.shape[1]).astype(np.float64)
        in_encoder, in_bm25 = np.where(of_encoder, places, np.inf), np.where(of_encoder, np.inf, places)
        again = documents[:, 1:] == documents[:, :-1]
        in_bm25[:, :-1] = np.where(again, in_bm25[:, 1:], in_bm25[:, :-1])
        documents[:, 1:][again] = -1
        return cls(documents, in_encoder, in_bm25)


@dataclass(frozen=True, slots=True)
class Fusion:
    """Reciprocal rank fusion of two rankings, with its constant and its weight."""

    k: int
    """Constant added to each rank: the larger it is, the less the top ranks outweigh the next ones."""
    weight: float
    """Weight of the encoder's ranking, 0 to 1; BM25's weight is one minus it."""

    def __call__(self, places: RankPlaces, num_documents: int) -> Found:
        """Merge two rankings into one of as many documents as a search returns.

        A document scores weight / (k + rank) in each ranking that has it (Cormack et al. 2009, "Reciprocal Rank Fusion
        outperforms Condorcet and individual Rank Learning Methods", section 2); among equals, the document with the
        lower number comes first.

        >>> Fusion(k=1, weight=0.5)(RankPlaces.of(np.array([[2, 0]]), np.array([[0, -1]])), 3).documents.tolist()
        [[0, 2, -1]]
        """
        scores = self.weight / (self.k + places.encoder + 1) + (1 - self.weight) / (self.k + places.bm25 + 1)
        scores[places.documents < 0] = 0.0
        width = min(DEPTH, num_documents)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :width]
        short = ((0, 0), (0, width - order.shape[1]))
        documents = np.pad(np.take_along_axis(places.documents, order, axis=1), short)
        best = np.pad(np.take_along_axis(scores, order, axis=1), short)
        return Found(np.where(best > 0, documents, -1), np.where(best > 0, best, -np.inf).astype(np.float32))


def combined_seeds(
    plan: PlannedSweep, seeds: Sequence[Repetition], baselines: Sequence[ScoredBaseline]
) -> list[Repetition]:
    """Combine each of the encoder's runs with BM25, as repetitions of the arm `combined`; empty if not retrieval.

    One constant and one weight for all seeds are chosen by the mean score on dev; test is scored with these only.
    """
    kind = kind_of(plan.job, plan.starts["encoder"])
    bm25 = next((one for one in baselines if one.name == "bm25"), None)
    if not isinstance(kind, Retrieval) or bm25 is None:
        return []
    splits: list[SplitName] = ["dev", *test_splits(plan.job)]
    rows = {split: kind.read(plan.job.task_folder, split) for split in splits}
    index = bm25_of(kind.collection.texts_read(), bm25.settings)
    by_words = {split: found_by(index, of_split).documents for split, of_split in rows.items()}

    def places(seed: Repetition, split: SplitName) -> RankPlaces:
        return RankPlaces.of(seed.array(plan.job, RANKING, split), by_words[split])

    def read(fusion: Fusion, found: RankPlaces, split: SplitName) -> NDArray[np.float64]:
        return kind.statistics(rows[split], fusion(found, len(kind.collection)), {})

    # One seed at a time: the positions for thousands of queries take hundreds of megabytes.
    on_dev: dict[Fusion, list[float]] = {Fusion(*one): [] for one in itertools.product(_CONSTANTS, _WEIGHTS)}
    for seed in seeds:
        of_dev = places(seed, "dev")
        for fusion, scores in on_dev.items():
            scores.append(kind.score(read(fusion, of_dev, "dev")))
    best = max(on_dev, key=lambda fusion: statistics.fmean(on_dev[fusion]))
    combined = []
    for seed in seeds:
        combined.append(replace(seed, arm="combined"))
        if (combined[-1].folder(plan.job) / OUTCOME).exists():
            continue
        found = {split: read(best, places(seed, split), split) for split in rows}
        by_split = {split: kind.scores(of_split) for split, of_split in found.items()}
        changes = {"dev": by_split["dev"], "curve": [], "settings": {"k": best.k, "weight": best.weight}}
        with folder_written_atomically(combined[-1].folder(plan.job)) as folder:
            (folder / TEST).mkdir()
            for split in by_split:
                np.save(folder / TEST / file_of(STATISTICS, split), found[split])
            write_json(
                folder / TEST / READING, {"scores": by_split, "degenerate": False, "details": {}, "cut_rows": {}}
            )
            write_json(folder / OUTCOME, {**seed.outcome(plan.job), **changes})
    return combined
