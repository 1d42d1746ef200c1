"""Sections on pretraining: what the encoder read, and how it learned, compared with baselines and a reference run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import accumulate, islice
from typing import Any

from bertline.corpus.document import Document
from bertline.corpus.storage import read_documents
from bertline.evaluation.charts import Series, bar_chart, line_chart
from bertline.evaluation.facts import Facts, PipelineFolders
from bertline.evaluation.html import (
    escape,
    figure,
    listing,
    number_of,
    paragraph,
    section,
    shown_tokens,
    side_by_side,
    table,
    verdict,
)
from bertline.evaluation.reference import ReferenceCurve, reference_for
from bertline.foundation.formats import count, duration, percent
from bertline.foundation.seeds import unit_interval
from bertline.pretraining.objectives.base import Metric
from bertline.tokenization.tokenizer import Tokenizer

_CONSIDERED_DOCUMENTS = 2_000
_FEWEST_SENTENCES = 4
_SENTENCES = 4
_REASONS = 12


def data_charts(facts: Facts) -> dict[str, str]:
    """Return the charts of the section by file name."""
    reasons: dict[str, list[tuple[str, float]]] = {}
    for reason, number in facts.corpus.get("dropped", {}).items():
        # Reasons are `UNIT/REASON`; counts of documents and of paragraphs are not comparable.
        unit, _, name = reason.rpartition("/")
        if number:
            reasons.setdefault(unit or "documents", []).append((name.replace("_", " "), float(number)))
    most = {unit: sorted(rows, key=lambda row: (-row[1], row[0]))[:_REASONS] for unit, rows in sorted(reasons.items())}
    return {f"dropped_{unit}": bar_chart(rows, name=f"{unit} left out") for unit, rows in most.items()}


def data_section(facts: Facts, pipeline: PipelineFolders, charts: dict[str, str], num_documents: int) -> str:
    """Return the section with corpus, samples and vocabulary."""
    head = ["", "documents", "sentences", "words", "characters"]
    rows = [
        [split, *(count(figures.get(name, 0)) for name in head[1:])]
        for split, figures in facts.corpus["counts"].items()
    ]
    dropped = [
        figure(chart, f"{name.removeprefix('dropped_').capitalize()} left out of the corpus, by reason.")
        for name, chart in charts.items()
        if name.startswith("dropped_")
    ]
    assert pipeline.tokenizer is not None  # only reports of a pretraining have this section
    tokenizer = Tokenizer.load(pipeline.tokenizer)
    samples = "".join(_document(document, tokenizer) for document in sample_documents(pipeline, num_documents))
    return section(
        "data",
        "What it read",
        table(head, rows),
        side_by_side(*dropped, _vocabulary(facts)),
        _surface(facts),
        '<p>Samples of what was kept and of what was dropped: <a href="../pages/corpus.html">the corpus page</a> '
        "(<code>artifacts/pages/corpus.html</code>).</p>",
        '<p>Words that are cut, and other vocabularies on this text: <a href="../pages/vocabulary.html">the vocabulary '
        "page</a> (<code>artifacts/pages/vocabulary.html</code>).</p>",
        "<h3>Held-out documents, and their tokens</h3>" if samples else "",
        paragraph("Tokens that continue a word are joined to it and shaded.") if samples else "",
        samples,
    )


def _surface(facts: Facts) -> str:
    """Return how well random pairs are told from true ones without a look at words; empty if there are no pairs."""
    notes = [
        f"{percent(of['train']['surface_accuracy'])} at length {length}"
        for length, of in facts.examples["lengths"].items()
        if "surface_accuracy" in of.get("train", {})
    ]
    if not notes:
        return ""
    return paragraph(
        f"Final marks and lengths alone tell random pairs from true ones in {listing(notes)}; 50 % is chance."
    )


def sample_documents(pipeline: PipelineFolders, number: int) -> list[Document]:
    """Return some held-out documents, chosen by a hash of their id so that the choice is deterministic."""
    if pipeline.corpus is None:
        return []
    documents = islice(read_documents(pipeline.corpus, "validation"), _CONSIDERED_DOCUMENTS)
    long_enough = [document for document in documents if len(document.sentences) >= _FEWEST_SENTENCES]
    return sorted(long_enough, key=lambda document: unit_interval("report sample", document.id))[:number]


def _document(document: Document, tokenizer: Tokenizer) -> str:
    encoded = map(tokenizer.encode, document.sentences[:_SENTENCES])
    lines = "".join(shown_tokens(tokenizer.tokens(ids)) for ids in encoded)
    more = len(document.sentences) - _SENTENCES
    rest = f'<p class="soft">and {count(more)} more sentences</p>' if more > 0 else ""
    return f"<article><h4>{escape(document.id)}</h4>{lines}{rest}</article>"


def _vocabulary(facts: Facts) -> str:
    quality = facts.tokenizer["quality"]
    case = "lower-cased" if facts.tokenizer["lowercase"] else "cased"
    note = (
        f"The vocabulary has {count(facts.tokenizer['vocab_size'])} {case} tokens. A word of held-out text takes "
        f"{quality['tokens_per_word']:.2f} of them; {percent(quality['whole_word_rate'])} of words are a single token "
        f"their own, {percent(quality['unknown_rate'])} cannot be written with them"
    )
    lost = quality.get("unknown_character_rate")
    note += "." if lost is None else f" ({percent(lost)} of the characters)."
    rows = [[word, split] for word, split in list(quality.get("sample", {}).items())[:12]]
    return f"<div><h3>The vocabulary</h3>{paragraph(note)}{table(['word', 'tokens'], rows) if rows else ''}</div>"


_CHARTS = {
    "learning_rate": ("optim/lr", "learning rate", "The learning rate of the schedule: warm-up, then decay."),
    "grad_norm": ("optim/grad_norm", "gradient norm", "The norm of the gradient before it is clipped."),
    "throughput": ("perf/tokens_per_s", "tokens per second", "Real tokens per second of training, without padding."),
}
_CHECKED = "loss spikes, values that are not finite, vanishing and exploding gradients, metrics that stay at their "
_CHECKED += "baselines, and waiting for data"
_ALARMS = 20


def optimization_charts(facts: Facts) -> dict[str, str]:
    """Return the charts by file name; metrics that were not recorded have no chart."""
    clip = facts.params.get("optimizer", {}).get("max_grad_norm")
    return {
        name: line_chart(
            [Series(title, facts.curve(metric), "c0")],
            x_name="step",
            y_name=title,
            level=("clipped above", clip) if name == "grad_norm" and clip is not None else None,
            marks=length_changes(facts),
        )
        for name, (metric, title, _) in _CHARTS.items()
        if facts.curve(metric)
    }


def length_changes(facts: Facts) -> list[tuple[float, str]]:
    """Return the steps after which the sequence length changes, each with the new length; curves may jump there."""
    phases = facts.params.get("pretrain", {}).get("phases") or []
    ends = accumulate(phase["steps"] for phase in phases)
    return [
        (float(end), f"length {after['max_length']}")
        for end, before, after in zip(ends, phases, phases[1:], strict=False)
        if after["max_length"] != before["max_length"] and end < facts.training["steps"]
    ]


def health(facts: Facts) -> str:
    """Return the health verdict, and a table of alarms with advice if there were any."""
    if not facts.alarms:
        return verdict(f"Health: no alarm. Training was watched for {_CHECKED}.", good=True)
    rows = [(f"{row['step']:,}", _what_happened(row), row["advice"]) for row in facts.alarms[:_ALARMS]]
    more = len(facts.alarms) - len(rows)
    rest = paragraph(f"And {more:,} more, in health.jsonl.") if more else ""
    lead = verdict(f"Health: {number_of(len(facts.alarms), 'alarm')}.")
    return f"{lead}<h3>Alarms</h3>{table(('step', 'what happened', 'what to do'), rows)}{rest}"


def _what_happened(alarm: dict[str, Any]) -> str:
    if "rewound_to" not in alarm:
        return str(alarm["message"])
    target = "its start" if alarm["rewound_to"] is None else f"step {alarm['rewound_to']:,}"
    sequences = sum(jump["sequences"] for jump in alarm["skipped"])
    return f"{alarm['message']}; training rolled back to {target} and skipped {sequences:,} sequences"


_FRAMES = 9
"""Maximum number of mask predictions frames shown per sentence."""
_GUESSES = 5
_SHIFT, _ODD = "probe/bigram_shift_accuracy", "probe/odd_word_accuracy"


def pretraining_charts(facts: Facts) -> dict[str, str]:
    """Return the charts by file name; curves that were not recorded have no chart."""
    charts = {}
    reference, marks = reference_for(facts.params), length_changes(facts)

    def draw(name: str, y_name: str, curves: list[tuple[str, str, str]], levels: list[tuple[str, float]]) -> None:
        recorded = [(title, metric, css) for title, metric, css in curves if facts.curve(metric)]
        if not recorded:
            return
        own = [Series(title, facts.curve(at), css, marked=not at.startswith("train/")) for title, at, css in recorded]
        behind = _behind(facts, reference, {at: css for _, at, css in curves if not at.startswith("train/")})
        level = next(iter(levels), None)
        charts[name] = line_chart([*own, *behind], x_name="step", y_name=y_name, level=level, marks=marks)

    for term in facts.pretrained_by.terms:
        if term.title:
            curves = [("training", f"train/{term.name}", "c1"), ("held-out", f"val/{term.name}", "c0")]
            levels = [(term.baseline, facts.baselines[term.name])] if term.baseline else []
            draw(term.name, term.title, curves, levels)
    for name, metrics in _by_chart(facts).items():
        curves = [(metric.title, f"val/{metric.name}", f"c{index}") for index, metric in enumerate(metrics)]
        levels = [(f"{one.baseline}, {one.title}", facts.baselines[one.name]) for one in metrics if one.baseline]
        draw(name, "held-out accuracy", curves, levels)
    curves = [("two words swapped?", _SHIFT, "c0"), ("one word replaced?", _ODD, "c1")]
    draw("probes", "accuracy of a linear probe", curves, [("chance", 0.5)])
    return charts | optimization_charts(facts)


def pretraining_section(facts: Facts, charts: dict[str, str]) -> str:
    """Return the section with curves, speed, alarms and mask predictions."""
    captions = {
        **{term.name: term.caption for term in facts.pretrained_by.terms},
        **{
            name: f"The share of {', and of '.join(metric.share_of for metric in metrics if metric.share_of)}."
            for name, metrics in _by_chart(facts).items()
        },
        "probes": "What a linear classifier reads off the encoder's frozen vectors of held-out sentences that it was "
        "not fitted on: whether two neighbouring words were swapped, whether a word was replaced by another as "
        "frequent. The first point is the encoder before training.",
        **{name: caption for name, (_, _, caption) in _CHARTS.items()},
    }
    figures = [figure(charts[name], caption) for name, caption in captions.items() if name in charts]
    training = facts.training
    speed = (
        f"It took {duration(training['train_time_s'])} at {count(training['perf/tokens_per_s'])} tokens per second, "
        f"{percent(training['perf/data_wait_fraction'])} of it waiting for data."
    )
    below = (paragraph(speed), health(facts), _lengths(facts), _reference(facts), _mask_predictions(facts))
    return section("pretraining", "Learning to read", side_by_side(*figures), *below)


def _by_chart(facts: Facts) -> dict[str, list[Metric]]:
    """Return the metrics of each chart by its name."""
    charts: dict[str, list[Metric]] = {}
    for metric in facts.pretrained_by.metrics:
        charts.setdefault(metric.chart, []).append(metric)
    return charts


def _behind(facts: Facts, reference: ReferenceCurve | None, colours: Mapping[str, str]) -> list[Series]:
    """Return the reference run's curves of some metrics, if there is a reference; only the first is in the legend."""
    if reference is None:
        return []
    curves = [Series("", reference.until(key, facts.curve(key)), css, behind=True) for key, css in colours.items()]
    drawn = [curve for curve in curves if curve.points]
    return [dataclasses.replace(curve, name="" if index else reference.title) for index, curve in enumerate(drawn)]


def _lengths(facts: Facts) -> str:
    changes = [
        f"to {said.removeprefix('length ')} tokens after step {step:,.0f}" for step, said in length_changes(facts)
    ]
    return paragraph(f"The sequence length changes {listing(changes)}; dotted lines mark it.") if changes else ""


def _reference(facts: Facts) -> str:
    """Return a paragraph on the reference run behind the pale curves and on differences in configuration."""
    reference = reference_for(facts.params)
    if reference is None:
        return ""
    words = (
        f"The pale curves are a run of {reference.name} that comes with bertline ({reference.device}, "
        f"{reference.date}, {duration(reference.train_time_s)}): the same text, vocabulary and model, and batches of "
        "the same size."
    )
    loss = f"val/{facts.pretrained_by.judged_by}"
    own, its = dict(facts.curve(loss)), dict(reference.curves.get(loss, []))
    if common := own.keys() & its.keys():
        step = max(common)
        words += f" After step {step:,} its held-out loss was {its[step]:.3f} nats; here it is {own[step]:.3f}."
    if differences := reference.differences(facts.params):
        words += f" Here {listing(differences)}."
    return paragraph(words)


def _mask_predictions(facts: Facts) -> str:
    """Return the predictions for the first [MASK] of each sentence at steps spread over training."""
    sentences: dict[str, list[dict[str, Any]]] = {}
    for row in facts.mask_predictions:
        sentences.setdefault(row["sentence"], []).append(row)
    if not sentences:
        return ""
    strips = "".join(_strip(sentence, rows) for sentence, rows in sentences.items())
    intro = "What the model would put into a few blanks as it learns. The stronger the colour, the surer it is."
    return f"<h3>The mask predictions</h3>{paragraph(intro)}<div class='strips'>{strips}</div>"


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
    """Return the first and last frame and evenly spaced frames between."""
    if len(rows) <= _FRAMES:
        return list(rows)
    return [rows[round(index * (len(rows) - 1) / (_FRAMES - 1))] for index in range(_FRAMES)]
