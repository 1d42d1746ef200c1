"""Metrics with the formulas of their reference implementations, in NumPy; a module per family. Names and ranges."""

_METRICS = {
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "f1": "F1",
    "f_beta": "F-beta",
    "auroc": "AUROC",
    "negative_brier_score": "negative Brier score",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "entity_f1": "entity F1",
    "entity_precision": "entity precision",
    "entity_recall": "entity recall",
    "exact_match": "exact match",
    "map": "MAP",
    "mrr": "MRR",
    "ndcg": "nDCG",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
}


def metric_name(metric: str) -> str:
    """Return the display name of a metric.

    >>> metric_name("macro_f1"), metric_name("ndcg@10"), metric_name("recall@100"), metric_name("accuracy")
    ('macro F1', 'nDCG@10', 'recall@100', 'accuracy')
    """
    name, sign, depth = metric.partition("@")
    return _METRICS.get(name, name.replace("_", " ")) + sign + depth


def score_range(metric: str) -> tuple[float, float]:
    """Return the worst and the best score that a metric can give.

    >>> score_range("accuracy"), score_range("pearson"), score_range("negative_log_loss")
    ((0.0, 1.0), (-1.0, 1.0), (-inf, 0.0))
    """
    if metric.startswith("negative_"):
        return float("-inf"), 0.0
    return (-1.0 if metric in ("matthews", "pearson", "spearman") else 0.0), 1.0
