"""Tables of a model card, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table.

    >>> print(table(["a", "b"], [[1, "x|y"]]))
    | a | b |
    | --- | --- |
    | 1 | x\\|y |
    """
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def column_names() -> list[str]:
    """The columns of `score_rows`."""
    return ["", "dev", "test"]


def score_rows(result: Mapping[str, Any]) -> list[list[str]]:
    """The scores of a sweep's result.json: this model's configuration, then what it is measured against."""
    rows = [_arm("**this encoder, fine-tuned**", result["arms"]["encoder"])]
    if result["arms"].get("random_weights") is not None:
        rows.append(_arm("the same from random weights", result["arms"]["random_weights"]))
    names = {"tfidf_logistic_regression": "TF-IDF and logistic regression", "majority": "the most frequent class"}
    for key, name in names.items():
        if key in result["baselines"]:
            baseline = result["baselines"][key]
            rows.append([name, f"{baseline['dev']:.3f}", f"{baseline['test']:.3f}"])
    return rows


def _arm(name: str, arm: Mapping[str, Any]) -> list[str]:
    return [name, *(f"{arm[f'{split}_mean']:.3f} ± {arm[f'{split}_std']:.3f}" for split in ("dev", "test"))]
