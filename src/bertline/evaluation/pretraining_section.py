"""How pretraining went: curves beside the unigram line, and the film strip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertline.evaluation.charts import Series, line_chart
from bertline.evaluation.facts import Facts
from bertline.evaluation.parts import figure, paragraph, section, side_by_side
from bertline.evaluation.wording import count, duration, escape, percent

_FRAMES = 9
"""Moments shown of each sentence."""
_GUESSES = 5


def pretraining_charts(facts: Facts) -> dict[str, str]:
    """Charts by file name; a curve that was not recorded has none."""
    charts = {}
    if facts.curve("val/mlm_loss") or facts.curve("train/mlm_loss"):
        charts["mlm_loss"] = line_chart(
            [
                Series("training", facts.curve("train/mlm_loss"), "c1"),
                Series("held-out", facts.curve("val/mlm_loss"), "c0", marked=True),
            ],
            x_name="step",
            y_name="MLM loss, nats",
            level=("frequency alone", facts.training["unigram_entropy"]),
        )
    if facts.curve("val/nsp_accuracy"):
        charts["accuracy"] = line_chart(
            [
                Series("blanks filled right", facts.curve("val/mlm_accuracy"), "c0", marked=True),
                Series("next sentence right", facts.curve("val/nsp_accuracy"), "c1", marked=True),
            ],
            x_name="step",
            y_name="held-out accuracy",
            level=("chance, next sentence", 0.5),
        )
    return charts


def pretraining_section(facts: Facts, charts: dict[str, str]) -> str:
    """Curves, speed and film strip."""
    captions = {
        "mlm_loss": "The loss of filling blanks. Below the dashed line the model uses the words around a blank, not "
        "only how frequent each word is.",
        "accuracy": "The share of blanks filled with exactly the right piece, and of sentence pairs judged right.",
    }
    figures = [figure(charts[name], caption) for name, caption in captions.items() if name in charts]
    training = facts.training
    speed = (
        f"It took {duration(training['train_time_s'])} at {count(training['perf/tokens_per_s'])} tokens a second, "
        f"{percent(training['perf/data_wait_fraction'])} of it waiting for data."
    )
    return section("pretraining", "Learning to read", side_by_side(*figures), paragraph(speed), _film_strip(facts))


def _film_strip(facts: Facts) -> str:
    """Each sentence with the guesses for its first blank at moments spread over training."""
    sentences: dict[str, list[dict[str, Any]]] = {}
    for row in facts.film_strip:
        sentences.setdefault(row["sentence"], []).append(row)
    if not sentences:
        return ""
    strips = "".join(_strip(sentence, rows) for sentence, rows in sentences.items())
    intro = "What the model would put into a few blanks as it learns. The stronger the colour, the surer it is."
    return f"<h3>The film strip</h3>{paragraph(intro)}<div class='strips'>{strips}</div>"


def _strip(sentence: str, rows: list[dict[str, Any]]) -> str:
    first, *others = sentence.split("[MASK]")
    shown = f'{escape(first)}<span class="blank">?</span>{escape("[MASK]".join(others))}'
    frames = "".join(
        f"<tr><th>{row['step']:,}</th><td>{''.join(_guess(*guess) for guess in row['guesses'][:_GUESSES])}</td></tr>"
        for row in _spread(rows)
    )
    return (
        f'<div class="strip"><p class="sentence">{shown}</p>'
        f"<table><thead><tr><th>step</th><th>guesses</th></tr></thead><tbody>{frames}</tbody></table></div>"
    )


def _guess(token: str, probability: float) -> str:
    return (
        f'<span class="guess" style="--p:{probability:.3f}" title="{percent(probability)}">{escape(token)}'
        f"<small>{100 * probability:.0f}</small></span>"
    )


def _spread(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first and the last frame and some between, evenly spaced."""
    if len(rows) <= _FRAMES:
        return list(rows)
    return [rows[round(index * (len(rows) - 1) / (_FRAMES - 1))] for index in range(_FRAMES)]
