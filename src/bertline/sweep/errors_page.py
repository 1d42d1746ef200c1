"""errors.html: a standalone page with the wrong predictions that the best model was most confident of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from bertline.foundation.files import write_atomically


def write_errors_page(path: Path, *, task: str, errors: Sequence[Mapping[str, Any]], num_rows: int) -> None:
    """Write the page of the `confident_errors` of a test split with `num_rows` rows."""
    title = f"{task}: most confident errors"
    some = f"{len(errors)} of the wrong answers on {num_rows:,} test rows, those first that the model was surest of."
    intro = some if errors else f"None of the {num_rows:,} test rows was answered wrong."
    if any(_aligned(error) for error in errors):
        intro += " Below each word or sentence stands its right label, and if the model was wrong, then what it said."
    page = Template(files("bertline.sweep").joinpath("errors_page.html").read_text(encoding="utf-8"))
    body = "".join(map(_article, errors))
    write_atomically(path, page.substitute(title=escape(title), intro=escape(intro), body=body))


_VERDICT = ("id", "gold", "predicted", "score")
_IDS_OF = {"first_document": "predicted", "right_document": "gold"}
"""Texts of documents, and the columns with their ids that they stand for."""


def _article(error: Mapping[str, Any]) -> str:
    sure = f", {error['score']:.3f}" if isinstance(error["score"], float) else ""
    if (aligned := _aligned(error)) is not None:
        name, units = aligned
        shown = _definition(f"{name}{sure}", f'<p class="units">{"".join(_unit(*unit) for unit in units)}</p>')
    else:
        hidden = (*_VERDICT, *_IDS_OF)
        shown = "".join(
            _term(name, value, "") for name, value in error.items() if name not in hidden and value is not None
        )
        shown += _term("right", _said(error, "gold"), "gold")
        shown += _term(f"predicted{sure}", _said(error, "predicted"), "predicted")
    return f"<article>\n<small>{escape(str(error['id']))}</small>\n<dl>{shown}</dl>\n</article>\n"


def _said(error: Mapping[str, Any], column: str) -> Any:
    """Return the right or the predicted answer; of a search, the text of the document and not its id."""
    texts = (error.get(name) for name, ids in _IDS_OF.items() if ids == column)
    return next(filter(None, texts), error[column])


def _aligned(error: Mapping[str, Any]) -> tuple[str, list[tuple[str, str, str]]] | None:
    """Return the words or sentences of a row, each with its right and its predicted label; None without such."""
    gold, predicted = (_labels(error[name]) for name in ("gold", "predicted"))
    for name in ("words", "sentences"):
        units = error.get(name)
        if isinstance(units, list) and len(gold) == len(predicted) >= len(units) > 0:
            return name, list(zip(units, gold, predicted, strict=False))  # long lists of words are cut
    return None


def _labels(value: Any) -> list[str]:
    return list(map(str, value)) if isinstance(value, list) else str(value).split(" ")


def _unit(unit: str, gold: str, predicted: str) -> str:
    """Return a word with its label below it; if it is wrong, the right label and then the predicted one."""
    labels = f'<small class="gold">{escape(gold)}</small>' if gold != "O" or gold != predicted else ""
    if gold != predicted:
        labels += f'<small class="predicted">{escape(predicted)}</small>'
    return f"<span>{escape(unit)}{labels}</span>"


def _term(name: str, value: Any, css: str) -> str:
    text = " · ".join(map(str, value)) if isinstance(value, list) else str(value)
    return _definition(name, escape(text), css)


def _definition(name: str, content: str, css: str = "") -> str:
    return f'<dt>{escape(name.replace("_", " "))}</dt><dd class="{css}">{content}</dd>\n'
