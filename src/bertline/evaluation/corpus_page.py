"""The corpus page: samples of what was kept and of what was dropped, to be read before anything is trained on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.corpus.quality.drops import drops_in_words
from bertline.corpus.storage import FORMAT_VERSION, KIND
from bertline.evaluation.charts import bar_chart
from bertline.evaluation.corpus_survey import (
    SHORT_CHARACTERS,
    Sentence,
    Survey,
    doubling_bins,
    survey_corpus,
)
from bertline.evaluation.html import (
    escape,
    figure,
    number_of,
    paragraph,
    quote,
    section,
    shortened,
    side_by_side,
    table,
    tiles,
)
from bertline.evaluation.page import framed
from bertline.foundation.files import write_atomically
from bertline.foundation.formats import count, percent
from bertline.foundation.manifests import read_manifest

_LONG = 700
"""Characters of a sentence that are shown."""
_FEW_WORDS = 2
_STYLE = ("blockquote footer { color: var(--soft); overflow-wrap: anywhere; }",)
"""Where a text is from, below it, is no judgement as in the report."""


def write_corpus_page(path: Path, corpus: Path, drops: Mapping[str, Any]) -> Survey:
    """Write the page as one file without other files; the same corpus gives the same bytes.

    Args:
        path: The HTML file.
        corpus: The artifact.
        drops: Counts and samples by reason, as of `DropSamples.content`.

    Returns:
        What the page shows.

    Raises:
        ArtifactError: The folder is not a corpus.
    """
    manifest = read_manifest(corpus, kind=KIND, format_version=FORMAT_VERSION)
    survey = survey_corpus(corpus)
    sections = [
        *_sources(manifest.get("sources")),
        _lengths(survey),
        _random(survey),
        _frequent(survey),
        _longest(survey),
        _dropped(drops),
    ]
    page = framed(
        sections,
        title="What the corpus looks like",
        kicker="Corpus",
        summary=_summary(manifest, survey, drops),
        footer="Made by bertline from the artifact of the stage corpus. It contains the text itself: share it as you "
        "would share that.",
        style=_STYLE,
    )
    write_atomically(path, page)
    return survey


def _summary(manifest: Mapping[str, Any], survey: Survey, drops: Mapping[str, Any]) -> str:
    counts = manifest["counts"]
    total = {name: sum(counts[split][name] for split in counts) for name in ("documents", "sentences", "words")}
    few = survey.share_of_words(up_to=_FEW_WORDS)
    dropped = drops_in_words(drops["counts"])
    said = paragraph(f"Source: {manifest['source']}. {dropped[:1].upper()}{dropped[1:]}.", "lead")
    validation = counts["validation"]["documents"] / max(1, total["documents"])
    return said + tiles(
        [
            (count(total["documents"]), "documents", f"{percent(validation)} of them for validation"),
            (
                count(total["sentences"]),
                "sentences",
                f"{total['sentences'] / max(1, total['documents']):.1f} a document",
            ),
            (count(total["words"]), "words", f"{total['words'] / max(1, total['sentences']):.1f} a sentence"),
            (percent(few), "sentences of one or two words", "headings, list marks, or wrongly split text"),
        ]
    )


def _sources(found: Mapping[str, Any] | None) -> list[str]:
    """Return counts by source and language, for a corpus of several sources."""
    if found is None:
        return []
    rows = [
        [
            label,
            percent(part["share"]),
            f"{part['rate']:.3g}",
            count(part["documents"]),
            count(part["counts"].get("train/documents", 0)),
            count(part["counts"].get("validation/documents", 0)),
            count(part["counts"].get("train/words", 0)),
        ]
        for label, part in found["parts"].items()
    ]
    heads = ["source", "share of text", "times read", "documents found", "in train", "in validation", "words of train"]
    dropped = [[name, drops_in_words(reasons)] for name, reasons in found["dropped"].items()]
    said = "A source in several languages has a row for each. Shares are of the characters of the train split."
    shown = [paragraph(said, "soft"), table(heads, rows)]
    return [
        section("sources", "Sources", *shown, *([table(["source", "what was dropped"], dropped)] if dropped else []))
    ]


def _lengths(survey: Survey) -> str:
    scripts = [(name.title(), float(number)) for name, number in survey.scripts.most_common(8)]
    charts = [
        figure(_bars(doubling_bins(survey.words_per_sentence), "sentences"), "Sentences by number of words."),
        figure(_bars(doubling_bins(survey.sentences_per_document), "documents"), "Documents by number of sentences."),
    ]
    if scripts:
        charts.append(figure(bar_chart(scripts, name="letters"), "Letters of a sample of sentences, by script."))
    return section("lengths", "Lengths and scripts", side_by_side(*charts))


def _bars(bins: list[tuple[str, int]], name: str) -> str:
    return bar_chart([(label, float(number)) for label, number in bins] or [("none", 0.0)], name=name)


def _random(survey: Survey) -> str:
    said = f"{number_of(len(survey.random), 'sentence')} of {count(survey.sentences)}, drawn at random."
    return section("random", "Random sentences", paragraph(said, "soft"), *map(_quoted, survey.random))


def _frequent(survey: Survey) -> str:
    said = (
        f"Sentences of at most {SHORT_CHARACTERS} characters that occur more than once. Abbreviations here mean that "
        "text was split in the middle of sentences."
    )
    rows = [[text, count(number), percent(number / max(1, survey.sentences))] for text, number in survey.frequent_short]
    shown = table(["sentence", "times", "of all sentences"], rows) if rows else paragraph("None.")
    return section("frequent", "The most frequent short sentences", paragraph(said, "soft"), shown)


def _longest(survey: Survey) -> str:
    said = "Long ones are often tables, lists, or text without marks between sentences."
    blocks = [
        quote(
            f"<p>{escape(shortened(one.text, _LONG))}</p>", f"{number_of(len(one.text), 'character')}, {one.document}"
        )
        for one in survey.longest
    ]
    return section("longest", "The longest sentences", paragraph(said, "soft"), *blocks)


def _dropped(drops: Mapping[str, Any]) -> str:
    blocks = []
    for reason, number in sorted(drops["counts"].items(), key=lambda entry: (-entry[1], entry[0])):
        thing, _, why = reason.partition("/")
        samples = drops["samples"].get(reason, [])
        blocks.append(
            f"<h3>{escape(why.replace('_', ' ').capitalize())}: {count(number)} {escape(thing.replace('_', ' '))}</h3>"
        )
        blocks += [
            quote(f"<p>{escape(one['text']) or '<i>empty</i>'}</p>", ", ".join(filter(None, (one["id"], one["note"]))))
            for one in samples
        ]
        if not samples:
            blocks.append(paragraph("The reader dropped these; it hands over no text.", "soft"))
    return section("dropped", "What was dropped or changed", *(blocks or [paragraph("Nothing.")]))


def _quoted(one: Sentence) -> str:
    return quote(f"<p>{escape(shortened(one.text, _LONG))}</p>", one.document)
