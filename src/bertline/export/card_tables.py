"""Markdown of a model card: escaped names and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bertline.foundation.formats import with_spread
from bertline.foundation.local_paths import without_local_path

# Characters that begin emphasis, code, links or images. An underscore inside a word has no meaning.
_SPECIAL = re.compile(r"[\\`*\[\]]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table.

    >>> print(table(["a", "b"], [[1, "x|y"]]))
    | a | b |
    | --- | --- |
    | 1 | x\\|y |
    """
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def column_names() -> list[str]:
    """Return the column names of `score_rows`."""
    return ["", "dev", "test", "95 % interval of test"]


def shown(title: str) -> str:
    """Escape the title of an arm or a baseline, and shorten it if it is a local path.

    >>> shown("/home/ada/models/minilm")
    './minilm'
    """
    return escaped(without_local_path(title))


def score_rows(result: Mapping[str, Any]) -> list[list[str]]:
    """Return the scores of a sweep's result.json: this model's configuration first, then arms and baselines."""
    arms = result["arms"]
    first = {"encoder": "**this model's configuration**"}
    rows = [
        [
            first.get(name, shown(arm["title"])),
            *(with_spread(arm[f"{split}_mean"], arm[f"{split}_std"]) for split in ("dev", "test")),
            interval(arm.get("test_interval")),
        ]
        for name, arm in sorted(arms.items(), key=lambda item: item[0] not in first)
        if arm is not None
    ]
    for baseline in result["baselines"].values():
        scores = [f"{baseline[split]:.3f}" for split in ("dev", "test")]
        rows.append([shown(baseline["title"]), *scores, interval(baseline.get("test_interval"))])
    return rows


def metric_rows(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return column names and one row per metric, with the scores of the best configuration on all test splits."""
    scores: Mapping[str, Mapping[str, Mapping[str, float | None]]] = result["arms"]["encoder"].get("scores", {})
    splits = [split for split in result.get("test_splits", ["test"]) if split in scores]
    metrics = list(dict.fromkeys(metric for split in splits for metric in scores[split]))
    rows = [[escaped(metric), *(_spread(scores[split].get(metric)) for split in splits)] for metric in metrics]
    return ["metric", *(escaped(split) for split in splits)], rows


def onnx_rows(onnx: Mapping[str, Any], torch_bytes: int) -> tuple[list[str], list[list[str]]]:
    """Return column names and one row per file: size, latency, and agreement with the PyTorch model."""
    latency: Mapping[str, Mapping[str, float]] = onnx.get("latency_ms", {})
    batches = list(latency.get("torch", {}))
    names = ["file", "MB", *(f"ms, batch of {size}" for size in batches), "largest difference", "agreement"]
    rows = [["`model.safetensors` (PyTorch)", _megabytes(torch_bytes), *_milliseconds(latency, "torch"), "", ""]]
    for name, file in onnx["files"].items():
        measured = [f"{file['max_difference']:.1e}", f"{file['agreement']:.4f}"]
        rows.append([f"`{file['file']}`", _megabytes(file["bytes"]), *_milliseconds(latency, name), *measured])
    return names, rows


def interval(bounds: Sequence[float] | None) -> str:
    """Format the bounds of an interval; empty without bounds.

    >>> interval([0.8123, 0.9])
    '0.812 to 0.900'
    >>> interval([-0.2, 0.1])
    '−0.200 to 0.100'
    """
    return f"{bounds[0]:.3f} to {bounds[1]:.3f}".replace("-", "\u2212") if bounds else ""


def _spread(score: Mapping[str, Any] | None) -> str:
    return with_spread(score["mean"], score["std"]) if score else ""


def _milliseconds(latency: Mapping[str, Mapping[str, float]], name: str) -> list[str]:
    return [f"{value:.3g}" for value in latency.get(name, {}).values()]


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.3g}"


def code_span(text: str) -> str:
    r"""Return text as inline code. Runs of white space, including line breaks, become one space.

    References:
        CommonMark 0.31, section 6.1: the fence is a longer run of backticks than any inside.

    Example:
        >>> code_span("no match"), code_span("a`b"), code_span("two\nlines")
        ('`no match`', '``a`b``', '`two lines`')
    """
    text = " ".join(text.split()) or " "
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    padding = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{padding}{text}{padding}{fence}"


def escaped(text: str) -> str:
    r"""Escape text for a paragraph, a heading or, through `table`, a table cell.

    Example:
        >>> escaped("<b>a*b</b>\n| docs_match")
        '&lt;b&gt;a\\*b&lt;/b&gt; | docs_match'
    """
    text = _SPECIAL.sub(r"\\\g<0>", " ".join(text.split()))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
