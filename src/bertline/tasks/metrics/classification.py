"""Classification metrics with the formulas of scikit-learn (tests compare both), in NumPy.

An undefined score is 0.0: every score without rows, F1 of a label that is neither gold nor predicted, Matthews
correlation if gold or predictions have only one label, AUROC if all rows have one label.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


def scores_of(matrix: NDArray[np.integer], *, beta: float | None = None) -> dict[str, float]:
    """Return every score of a confusion matrix by name; `f1` is the F1 of the second of exactly two labels.

    `f_beta` weighs its recall by `beta`: (1 + beta^2) * precision * recall / (beta^2 * precision + recall).
    """
    scores = {"accuracy": accuracy(matrix), "macro_f1": macro_f1(matrix), "matthews": matthews(matrix)}
    gold = matrix.sum(axis=1)
    recalls = np.diag(matrix)[gold > 0] / gold[gold > 0]
    scores["balanced_accuracy"] = float(recalls.mean()) if len(recalls) else 0.0
    # With one label per row, micro-averaged F1 equals accuracy.
    scores["micro_f1"] = scores["accuracy"]
    for name, weight in (("f1", 1), ("f_beta", beta)) if len(matrix) == 2 else ():
        if weight is not None:
            used = weight**2 * matrix[1].sum() + matrix[:, 1].sum()
            scores[name] = float((1 + weight**2) * matrix[1, 1] / used) if used else 0.0
    return scores


def confusion_matrix(gold: NDArray[np.integer], predicted: NDArray[np.integer], num_labels: int) -> NDArray[np.integer]:
    """Count rows by [gold label, predicted label]."""
    cells = np.bincount(gold * num_labels + predicted, minlength=num_labels * num_labels)
    return cells.reshape(num_labels, num_labels)


def accuracy(matrix: NDArray[np.integer]) -> float:
    """Return the fraction of rows on the diagonal."""
    return float(np.trace(matrix) / max(matrix.sum(), 1))


def macro_f1(matrix: NDArray[np.integer], *, of_gold: bool = False) -> float:
    """Return the mean F1 over the labels that are gold or predicted at least once.

    Other labels have no F1 and are excluded, as in scikit-learn's default. `of_gold` also excludes those that are never
    gold, whose F1 is 0 whatever the predictions.
    """
    hits = np.diag(matrix)
    used = matrix.sum(axis=0) + matrix.sum(axis=1)
    present = matrix.sum(axis=1) > 0 if of_gold else used > 0
    return float(np.mean(2 * hits[present] / used[present])) if present.any() else 0.0


def matthews(matrix: NDArray[np.integer]) -> float:
    """Return the Matthews correlation for any number of labels; 0 if gold or predictions have only one label.

    References:
        Gorodkin, "Comparing two K-category assignments by a K-category correlation coefficient", 2004, equation 8.
    """
    counts = matrix.astype(np.float64)
    total, hits = counts.sum(), np.trace(counts)
    gold, predicted = counts.sum(axis=1), counts.sum(axis=0)
    spread = np.sqrt(total**2 - predicted @ predicted) * np.sqrt(total**2 - gold @ gold)
    return float((hits * total - gold @ predicted) / spread) if spread > 0 else 0.0


def auroc(gold: NDArray[np.integer], probabilities: NDArray[np.floating]) -> float:
    """Return the area under the ROC curve, from label ids [N] and probabilities [N, L].

    With more than two labels, it is the mean over each label against the rest, if some rows have it and others do not.
    """
    from scipy.stats import rankdata

    areas = []
    for has, scores in _against_the_rest(gold, probabilities):
        if 0 < (positives := int(has.sum())) < len(has):
            above = rankdata(scores)[has].sum() - positives * (positives + 1) / 2
            areas.append(above / (positives * (len(has) - positives)))
    return float(np.mean(areas)) if areas else 0.0


def average_precision(gold: NDArray[np.integer], probabilities: NDArray[np.floating]) -> float:
    """Return the average precision of the second of two labels, or the mean over the labels that rows have."""
    means = []
    for has, scores in _against_the_rest(gold, probabilities):
        if has.any():
            order = np.argsort(-scores, kind="stable")
            ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # rows of equal scores count together
            hits = np.cumsum(has[order])[ends]
            means.append(np.diff(hits, prepend=0) @ (hits / (ends + 1)) / hits[-1])
    return float(np.mean(means)) if means else 0.0


def negative_log_loss(gold: NDArray[np.integer], probabilities: NDArray[np.floating]) -> float:
    """Return the mean log probability (in nats) of the true labels."""
    of_gold = probabilities[np.arange(len(gold)), gold]
    return float(np.log(np.clip(of_gold, np.finfo(np.float32).eps, 1.0)).mean()) if len(gold) else 0.0


def negative_brier_score(gold: NDArray[np.integer], probabilities: NDArray[np.floating]) -> float:
    """Return minus the mean squared distance of the probabilities to 1 and 0, summed over labels (of two, the second).

    Reference: Brier, "Verification of forecasts expressed in terms of probability", 1950.
    """
    squares = sum((scores - has) ** 2 for has, scores in _against_the_rest(gold, probabilities))
    return -float(np.mean(squares)) if len(gold) else 0.0


PROBABILITY_SCORES: dict[str, Callable[[NDArray[np.integer], NDArray[np.floating]], float]] = {
    score.__name__: score for score in (auroc, average_precision, negative_log_loss, negative_brier_score)
}
"""Scores of label ids [N] and probabilities [N, L] by name; of each, higher is better."""


def _against_the_rest(
    gold: NDArray[np.integer], probabilities: NDArray[np.floating]
) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.floating]]]:
    """Yield which rows have a label, and its probabilities, for each label; of two, for the second."""
    for label, scores in enumerate(probabilities.T):
        if label or len(probabilities.T) != 2:
            yield gold == label, scores


def best_threshold(
    gold: NDArray[np.integer], probabilities: NDArray[np.floating], score: Callable[[NDArray[np.integer]], float]
) -> float:
    """Return the probability from which on predicting the second of two labels scores best, by a confusion matrix.

    It is 0.5 or the middle of two neighbouring probabilities [N]; of equally good ones, the nearest to 0.5.
    """
    values = np.unique(probabilities.astype(np.float64))
    thresholds = np.append(0.5, (values[1:] + values[:-1]) / 2)
    thresholds = thresholds[np.argsort(np.abs(thresholds - 0.5), kind="stable")]
    below = [np.searchsorted(np.sort(probabilities[gold == label].astype(np.float64)), thresholds) for label in (0, 1)]
    rows = np.bincount(gold, minlength=2)
    matrices = np.stack([np.stack([below[label], rows[label] - below[label]], axis=-1) for label in (0, 1)], axis=1)
    return float(thresholds[int(np.argmax([score(matrix) for matrix in matrices]))])


def multi_label_scores(gold: NDArray[np.integer], given: NDArray[np.integer]) -> dict[str, float]:
    """Return the scores of rows with any number of labels each.

    `accuracy` is the fraction of rows whose labels are all right (subset accuracy). `micro_f1` pools all (row, label)
    decisions. `macro_f1` is the mean over all labels; a label that is neither gold nor predicted counts 0
    (scikit-learn's default for multi-label input, unlike single-label input).

    Args:
        gold: [N, L] gold labels, 0 or 1.
        given: [N, L] predicted labels, 0 or 1.
    """
    if not gold.size:
        return {"accuracy": 0.0, "macro_f1": 0.0, "micro_f1": 0.0}
    hits, used = (gold & given).sum(axis=0), gold.sum(axis=0) + given.sum(axis=0)
    return {
        "accuracy": float((gold == given).all(axis=1).mean()),
        "macro_f1": float(np.mean(2 * hits / np.maximum(used, 1))),
        "micro_f1": float(2 * hits.sum() / max(used.sum(), 1)),
    }


def scores_by_label(
    counts: NDArray[np.generic], labels: Sequence[str], *, support: str = "support"
) -> dict[str, dict[str, float]]:
    """Return precision, recall, F1 and number of gold occurrences (as `support`) of each label.

    Args:
        counts: [L, 3], hits, predicted and gold occurrences of each label.
    """
    return {
        label: {**precision_recall_f1(*of_label), support: int(of_label[2])}
        for label, of_label in zip(labels, counts.tolist(), strict=True)
    }


def precision_recall_f1(hits: float, predicted: float, gold: float) -> dict[str, float]:
    """Return `precision`, `recall` and `f1` from counts; a score with an empty denominator is 0."""
    parts = {"precision": (hits, predicted), "recall": (hits, gold), "f1": (2 * hits, predicted + gold)}
    return {name: part / whole if whole else 0.0 for name, (part, whole) in parts.items()}


def expected_calibration_error(
    probabilities: NDArray[np.floating], happened: NDArray[np.bool_], *, num_bins: int = 15
) -> float:
    """Compute the expected calibration error over bins of equal width.

    Args:
        probabilities: [N] in [0, 1]; for a classifier, the probability of the predicted label.
        happened: [N] whether the event happened; for a classifier, whether the predicted label is right.
        num_bins: Number M of bins: [0, 1/M], (1/M, 2/M], and so on.

    Returns:
        Sum over bins of |bin| / N * |fraction that happened - mean probability|; 0.0 without rows.

    Reference: Guo et al. 2017, On Calibration of Modern Neural Networks (arXiv 1706.04599), section 2, equation 3
    (after Naeini et al. 2015), with the 15 bins of its section 5.
    """
    if not len(probabilities):
        return 0.0
    bins = np.clip(np.ceil(probabilities * num_bins).astype(np.int64) - 1, 0, num_bins - 1)
    gaps = np.bincount(bins, weights=happened - probabilities.astype(np.float64), minlength=num_bins)
    return float(np.abs(gaps).sum() / len(probabilities))


def counts_of_rows(
    gold: Iterable[NDArray[np.integer]], predicted: Iterable[NDArray[np.integer]], num_labels: int
) -> NDArray[np.float64]:
    """Return for each label the number of hits, of predicted and of gold occurrences in each row, [N, 3 labels].

    For labels that stand in sequences; `scores_of_counts` and `counts_by_label` sum the counts over rows.
    """
    counts = [
        [np.bincount(labels, minlength=num_labels) for labels in (right[right == given], given, right)]
        for right, given in zip(gold, predicted, strict=True)
    ]
    return np.array(counts, dtype=np.float64).reshape(len(counts), 3 * num_labels)


def scores_of_counts(statistics: NDArray[np.float64]) -> dict[str, float]:
    """Return `accuracy` and `macro_f1`, the mean over the labels that occur.

    Args:
        statistics: [N, 3 labels], see `counts_of_rows`.
    """
    hits, predicted, gold = statistics.sum(axis=0).reshape(3, -1)
    occurs = gold > 0
    f1 = 2 * hits[occurs] / (predicted + gold)[occurs]
    return {
        "accuracy": float(hits.sum() / gold.sum()) if gold.any() else 0.0,
        "macro_f1": float(f1.mean()) if len(f1) else 0.0,
    }


def counts_by_label(statistics: NDArray[np.float64], labels: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return precision, recall, F1 and support of each label that occurs or was predicted; see `scores_of_counts`."""
    counts = statistics.sum(axis=0).reshape(3, -1).T
    occurs = counts[:, 1:].any(axis=1)
    return scores_by_label(counts[occurs], [label for label, has in zip(labels, occurs, strict=True) if has])
