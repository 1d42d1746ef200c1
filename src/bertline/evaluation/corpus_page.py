"""The corpus page: samples of what was kept and of what was dropped, to be read before anything is trained on it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertline.corpus.document import source_of
from bertline.corpus.quality.drops import drops_in_words, is_no_drop
from bertline.corpus.storage import FORMAT_VERSION, KIND
from bertline.evaluation.charts import bar_chart
from bertline.evaluation.corpus_survey import (
    SHORT_CHARACTERS,
    Sentence,
    Survey,
    doubling_bins,
    quantile,
    survey_corpus,
)
from bertline.evaluation.html import (
    escape,
    figure,
    folded,
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
_MOST_OPEN = 6
"""Sources whose samples all stand open, and that are listed in a line."""
_LEAST_SCRIPT = 0.02
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
            source_of(label),
            part["language"] or "–",
            percent(part["share"]),
            f"{part['rate']:.3g}",
            count(part["documents"]),
            count(part["counts"].get("train/documents", 0)),
            count(part["counts"].get("validation/documents", 0)),
            count(part["counts"].get("train/words", 0)),
        ]
        for label, part in found["parts"].items()
    ]
    heads = ["share of text", "times read", "documents found", "in train", "in validation", "words of train"]
    said = "A source in several languages has a row for each. Shares are of the characters of the train split."
    shown = [paragraph(said, "soft"), table(["source", "language", *heads], rows), _languages(found["parts"])]
    dropped = [[name, drops_in_words(reasons)] for name, reasons in found["dropped"].items()]
    if dropped:
        shown.append(table(["source", "what was dropped"], dropped))
    return [section("sources", "Sources", *shown)]


def _languages(parts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return counts by language, where they are not those of single sources."""
    by_language: defaultdict[str, list[tuple[str, Mapping[str, Any]]]] = defaultdict(list)
    for label, part in parts.items():
        by_language[part["language"] or "not said"].append((label, part))
    if len(by_language) == len(parts) or not any(part["language"] for part in parts.values()):
        return ""
    share = {name: sum(part["share"] for _, part in of_language) for name, of_language in by_language.items()}
    rows = [
        [
            name,
            percent(share[name]),
            count(sum(part["counts"].get("train/documents", 0) for _, part in by_language[name])),
            count(sum(part["counts"].get("train/words", 0) for _, part in by_language[name])),
            ", ".join(dict.fromkeys(source_of(label) for label, _ in by_language[name])),
        ]
        for name in sorted(by_language, key=lambda name: (-share[name], name))
    ]
    return table(["language", "share of text", "in train", "words of train", "from"], rows)


def _lengths(survey: Survey) -> str:
    scripts = [(name.title(), float(number)) for name, number in survey.scripts.most_common(8)]
    charts = [
        figure(_bars(doubling_bins(survey.words_per_sentence), "sentences"), "Sentences by number of words."),
        figure(_bars(doubling_bins(survey.sentences_per_document), "documents"), "Documents by number of sentences."),
    ]
    if scripts:
        charts.append(figure(bar_chart(scripts, name="letters"), "Letters of a sample of sentences, by script."))
    heads = [
        "source",
        "sentences",
        "words, median",
        "words, 90 %",
        "one or two words",
        "sentences a document",
        "scripts",
    ]
    rows = [
        [
            label,
            count(part.sentences),
            count(quantile(part.words_per_sentence, 0.5)),
            count(quantile(part.words_per_sentence, 0.9)),
            percent(part.share_of_words(up_to=_FEW_WORDS)),
            f"{part.sentences / max(1, part.sentences_per_document.total()):.1f}",
            _main_scripts(part.scripts),
        ]
        for label, part in survey.parts.items()
    ]
    return section("lengths", "Lengths and scripts", side_by_side(*charts), *([table(heads, rows)] if rows else []))


def _main_scripts(scripts: Counter[str]) -> str:
    """Return the most frequent scripts with their shares of the letters.

    Example:
        >>> _main_scripts(Counter(LATIN=75, CYRILLIC=24, GREEK=1))
        'Latin 75.0 %, Cyrillic 24.0 %'
    """
    total = max(1, scripts.total())
    most = [(name, number) for name, number in scripts.most_common(3) if number / total >= _LEAST_SCRIPT]
    return ", ".join(f"{name.title()} {percent(number / total)}" for name, number in most)


def _bars(bins: list[tuple[str, int]], name: str) -> str:
    return bar_chart([(label, float(number)) for label, number in bins] or [("none", 0.0)], name=name)


def _random(survey: Survey) -> str:
    said = f"{number_of(len(survey.random), 'sentence')} of {count(survey.sentences)}, drawn at random."
    if not survey.parts:
        blocks = list(map(_quoted, survey.random))
    else:
        said = f"{said[:-1]} from each source by itself."
        blocks = _by_source(
            {
                f"{label}: {len(part.random)} of {count(part.sentences)}": list(map(_quoted, part.random))
                for label, part in survey.parts.items()
            }
        )
    return section("random", "Random sentences", paragraph(said, "soft"), *blocks)


def _by_source(blocks: Mapping[str, Sequence[str]]) -> list[str]:
    """Return blocks under a heading for each source; those of many sources are opened one by one."""
    if len(blocks) > _MOST_OPEN:
        return [folded(heading, "".join(of_source)) for heading, of_source in blocks.items()]
    return [block for heading, of_source in blocks.items() for block in (f"<h4>{escape(heading)}</h4>", *of_source)]


def _frequent(survey: Survey) -> str:
    said = (
        f"Sentences of at most {SHORT_CHARACTERS} characters that occur more than once. Abbreviations here mean that "
        "text was split in the middle of sentences."
    )
    rows = [
        [text, count(number), percent(number / max(1, survey.sentences)), _places(survey.frequent_in.get(text, {}))]
        for text, number in survey.frequent_short
    ]
    heads = ["sentence", "times", "of all sentences", "in"]
    shown = table(heads, rows) if rows else paragraph("None.")
    return section("frequent", "The most frequent short sentences", paragraph(said, "soft"), shown)


def _places(numbers: Mapping[str, int]) -> str:
    """Return numbers by source in words, the largest first.

    Example:
        >>> _places({"novels": 3, "wiki[de]": 1200})
        'wiki[de] 1,200, novels 3'
    """
    ranked = sorted(numbers.items(), key=lambda entry: (-entry[1], entry[0]))
    listed = ", ".join(f"{name} {count(number)}" for name, number in ranked[:_MOST_OPEN])
    return listed + (f" and {len(ranked) - _MOST_OPEN} more" if len(ranked) > _MOST_OPEN else "")


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
    by_source = drops.get("by_source", {})
    for reason, number in sorted(drops["counts"].items(), key=lambda entry: (-entry[1], entry[0])):
        thing, _, why = reason.partition("/")
        samples = drops["samples"].get(reason, [])
        blocks.append(
            f"<h3>{escape(why.replace('_', ' ').capitalize())}: {count(number)} {escape(thing.replace('_', ' '))}</h3>"
        )
        numbers = {name: found[reason] for name, found in by_source.items() if found.get(reason)}
        if samples and len(by_source) > 1:
            blocks += _by_source(
                {
                    f"{name}: {count(of_source)}": [_sample(one) for one in samples if one["source"] == name]
                    for name, of_source in numbers.items()
                }
            )
            continue
        blocks += map(_sample, samples)
        if not samples and not is_no_drop(reason):
            places = f" {_places(numbers)}." if len(by_source) > 1 else ""
            blocks.append(paragraph(f"The reader dropped these; it hands over no text.{places}", "soft"))
    return section("dropped", "What was dropped or changed", *(blocks or [paragraph("Nothing.")]))


def _sample(one: Mapping[str, str]) -> str:
    return quote(f"<p>{escape(one['text']) or '<i>empty</i>'}</p>", ", ".join(filter(None, (one["id"], one["note"]))))


def _quoted(one: Sentence) -> str:
    return quote(f"<p>{escape(shortened(one.text, _LONG))}</p>", one.document)
