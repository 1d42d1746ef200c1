"""The arm `combined` of a retrieval task: the encoder's and BM25's rankings, merged by reciprocal rank fusion."""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import replace

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


def fused(encoder: NDArray[np.int64], bm25: NDArray[np.int64], num_documents: int, *, k: int, weight: float) -> Found:
    """Merge two rankings [N, K] and [N, L], padded with -1, into one of as many documents as a search returns.

    A document scores weight / (k + rank) in each ranking that has it (Cormack et al. 2009, "Reciprocal Rank Fusion
    outperforms Condorcet and individual Rank Learning Methods", section 2); among equals, the document with the
    lower number comes first.

    Args:
        k: Constant added to each rank: the larger it is, the less the top ranks outweigh the next ones.
        weight: Weight of the encoder's ranking, 0 to 1; BM25's weight is one minus it.

    >>> fused(np.array([[2, 0]]), np.array([[0, -1]]), 3, k=1, weight=0.5).documents.tolist()
    [[0, 2, -1]]
    """
    shape = len(encoder), min(DEPTH, num_documents)
    merged = Found(np.full(shape, -1), np.full(shape, -np.inf, dtype=np.float32))
    for row, rankings in enumerate(zip(encoder, bm25, strict=True)):
        candidates = np.unique(np.concatenate(rankings))
        scores = np.zeros(len(candidates))
        for ranking, share in zip(rankings, (weight, 1 - weight), strict=True):
            found = ranking[ranking >= 0]
            scores[np.searchsorted(candidates, found)] += share / (k + np.arange(len(found)) + 1)
        order = np.argsort(-scores, kind="stable")[: shape[1]]
        order = order[scores[order] > 0]
        merged.documents[row, : len(order)] = candidates[order]
        merged.scores[row, : len(order)] = scores[order]
    return merged


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

    def read(seed: Repetition, split: SplitName, k: int, weight: float) -> NDArray[np.float64]:
        ranking = seed.array(plan.job, RANKING, split)
        found = fused(ranking, by_words[split], len(kind.collection), k=k, weight=weight)
        return kind.statistics(rows[split], found, {})

    def on_dev(setting: tuple[int, float]) -> float:
        return statistics.fmean(kind.score(read(seed, "dev", *setting)) for seed in seeds)

    k, weight = max(itertools.product(_CONSTANTS, _WEIGHTS), key=on_dev)
    combined = []
    for seed in seeds:
        combined.append(replace(seed, arm="combined"))
        if (combined[-1].folder(plan.job) / OUTCOME).exists():
            continue
        found = {split: read(seed, split, k, weight) for split in rows}
        by_split = {split: kind.scores(of_split) for split, of_split in found.items()}
        changes = {"dev": by_split["dev"], "curve": [], "settings": {"k": k, "weight": weight}}
        with folder_written_atomically(combined[-1].folder(plan.job)) as folder:
            (folder / TEST).mkdir()
            for split in by_split:
                np.save(folder / TEST / file_of(STATISTICS, split), found[split])
            write_json(
                folder / TEST / READING, {"scores": by_split, "degenerate": False, "details": {}, "cut_rows": {}}
            )
            write_json(folder / OUTCOME, {**seed.outcome(plan.job), **changes})
    return combined
