"""The data page: what was kept and dropped of the text, and how the vocabulary fits it, to be read before training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from bertline.corpus.document import source_of
from bertline.corpus.quality.drops import DROPS_NAME, drops_in_words, is_no_drop
from bertline.corpus.storage import FORMAT_VERSION, KIND
from bertline.evaluation.charts import Captioned
from bertline.evaluation.corpus_survey import SHORT_CHARACTERS, CorpusSurvey, SurveyedPart, doubling_bins, survey_corpus
from bertline.evaluation.figures import Series, bar_chart, line_chart
from bertline.evaluation.html import rendered
from bertline.evaluation.vocabulary_survey import VocabularySurvey
from bertline.foundation.files import read_json, write_atomically
from bertline.foundation.formats import count, percent
from bertline.foundation.manifests import read_manifest
from bertline.tokenization.fit import Fit

# Sources whose samples all stand open, and that are listed in a line.
_MOST_OPEN = 6


def write_data_page(path: Path, corpus: Path, vocabulary: VocabularySurvey) -> None:
    """Write the page as one file without other files; the same corpus and vocabulary give the same bytes."""
    manifest = read_manifest(corpus, kind=KIND, format_version=FORMAT_VERSION)
    drops, survey = read_json(corpus / DROPS_NAME), survey_corpus(corpus)
    page = rendered(
        "data.html",
        title="What the text and the vocabulary look like",
        manifest=manifest,
        total={
            name: sum(split[name] for split in manifest["counts"].values())
            for name in ("documents", "sentences", "words")
        },
        survey=survey,
        dropped=drops_in_words(drops["counts"]),
        drops=[
            _drop(drops, reason, number)
            for reason, number in sorted(drops["counts"].items(), key=lambda entry: (-entry[1], entry[0]))
        ],
        sources=_sources(manifest.get("sources")),
        parts=[_part_row(label, part) for label, part in survey.parts.items()],
        charts=_corpus_charts(survey),
        short_characters=SHORT_CHARACTERS,
        most_open=_MOST_OPEN,
        vocabulary=vocabulary,
        fits=[_fit_row(vocabulary, one) for one in (vocabulary.own, *vocabulary.trained.values(), *vocabulary.given)],
        coverage=_coverage_chart(vocabulary),
        part_rows=_part_rows,
        small=small,
    )
    write_atomically(path, page)


def _corpus_charts(survey: CorpusSurvey) -> list[Captioned]:
    charts = [
        ("sentences", doubling_bins(survey.whole.words_per_sentence), "Sentences by number of words."),
        ("documents", doubling_bins(survey.whole.sentences_per_document), "Documents by number of sentences."),
    ]
    return [Captioned(name, bar_chart(bars, name=name), caption) for name, bars, caption in charts]


def _part_row(label: str, part: SurveyedPart) -> list[str]:
    lengths = part.words_per_sentence
    weights = list(lengths.values()) or [1]
    median, most = np.quantile(list(lengths) or [0], [0.5, 0.9], weights=weights, method="inverted_cdf")
    return [
        label,
        count(part.sentences),
        count(median),
        count(most),
        percent(part.share_of_few_words),
        f"{part.sentences / max(1, part.sentences_per_document.total()):.1f}",
    ]


def _sources(found: Mapping[str, Any] | None) -> dict[str, list[list[str]]] | None:
    """Return rows by source and of drops; None for one source."""
    if found is None:
        return None
    rows = []
    for label, part in found["parts"].items():
        amounts = [part["counts"].get(name, 0) for name in ("train/documents", "validation/documents", "train/words")]
        share, rate = percent(part["share"]), f"{part['rate']:.3g}"
        name = part["language"] or "–"
        rows.append([source_of(label), name, share, rate, count(part["documents"]), *map(count, amounts)])
    return {"sources": rows, "dropped": [[name, drops_in_words(reasons)] for name, reasons in found["dropped"].items()]}


def _drop(drops: Mapping[str, Any], reason: str, number: int) -> dict[str, Any]:
    """Return what was dropped for a reason: how much of what, samples, by source if there are several."""
    thing, _, why = reason.partition("/")
    by_source = {name: counts[reason] for name, counts in drops.get("by_source", {}).items() if counts.get(reason)}
    samples = drops["samples"].get(reason, [])
    several = len(drops.get("by_source", {})) > 1
    return {
        "why": why.replace("_", " ").capitalize(),
        "thing": thing,
        "number": number,
        "samples": {
            f"{name}: {count(of_source)}": [one for one in samples if one["source"] == name]
            for name, of_source in by_source.items()
        }
        if several and samples
        else {"": samples},
        "without_text": not samples and not is_no_drop(reason),
    }


_COLOURS = ("c0", "c1", "c2", "c4", "c5", "c6", "c7", "c8", "c9")


def _coverage_chart(survey: VocabularySurvey) -> Captioned:
    """Return a chart of the share of the text that the most frequent tokens are."""
    named = list(zip((survey.own, *survey.given), _COLOURS, strict=False))
    curves = [Series(one.name, one.coverage(), colour) for one, colour in named]
    chart = line_chart(curves, x_name="tokens, the most frequent first", y_name="share of the text", log_x=True)
    used = f"{count(survey.own.num_used)} of {count(survey.own.size)} tokens occur in this text."
    caption = f"Coverage: the share of the text that the most frequent tokens are. {used}"
    return Captioned("coverage", chart, caption)


def small(share: float) -> str:
    """Format a share that matters though it is small.

    >>> small(0.00023), small(0.0)
    ('0.023 %', '0 %')
    """
    return f"{100 * share:.2g} %"


def _fit_cells(one: Fit) -> list[str]:
    lost = f" ({small(one.unknown_character_rate)} of characters)" if one.unknown else ""
    return [f"{one.tokens_per_word:.3f}", percent(one.continued_rate), small(one.unknown_rate) + lost]


def _fit_row(survey: VocabularySurvey, one: Fit) -> list[str]:
    words = 512 / max(1e-9, one.tokens_per_word)
    name = Markup("<b>{}</b>").format(one.name) if one is survey.own else one.name
    return [name, count(one.size), *_fit_cells(one), count(round(words)), percent(survey.shared.get(one.name, 1.0))]


def _part_rows(parts: Mapping[str, Sequence[Fit]]) -> list[list[str]]:
    return [
        [name, one.name if len(fits) > 1 else "", count(one.words), *_fit_cells(one)]
        for name, fits in parts.items()
        for one in fits
    ]
