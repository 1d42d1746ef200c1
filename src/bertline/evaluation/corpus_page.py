"""The corpus page: samples of what was kept and of what was dropped, to be read before anything is trained on it."""

from __future__ import annotations

import heapq
import random
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count as numbers
from pathlib import Path
from typing import Any

from bertline.corpus.document import Document, Split, label_of, source_of
from bertline.corpus.quality.drops import drops_in_words, is_no_drop
from bertline.corpus.storage import FORMAT_VERSION, KIND, read_documents
from bertline.evaluation.charts import bar_chart
from bertline.evaluation.html import (
    escape,
    figure,
    folded,
    framed,
    number_of,
    paragraph,
    quote,
    section,
    shortened,
    side_by_side,
    table,
    tiles,
)
from bertline.foundation.files import write_atomically
from bertline.foundation.formats import count, percent
from bertline.foundation.manifests import read_manifest

# What a corpus looks like: read once, in bounded memory; the same corpus gives the same survey.

NUM_RANDOM, NUM_FREQUENT, NUM_LONGEST = 20, 20, 5
SHORT_CHARACTERS = 40
"""Longest sentence, in characters, that is counted among the frequent short ones."""
_MAX_COUNTED = 400_000
_SCRIPT_SAMPLES = 4_000
_FEWEST_RANDOM, _FEWEST_SCRIPT_SAMPLES = 3, 200
"""Sentences of each source and language, however many there are."""
_SPLITS: tuple[Split, ...] = ("train", "validation")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence and the document it is of."""

    document: str
    text: str


@dataclass(kw_only=True, slots=True)
class Part:
    """What one source looks like in one language, or a corpus of one source as a whole."""

    sentences: int
    random: list[Sentence] = field(default_factory=list)
    """In reading order."""
    words_per_sentence: Counter[int] = field(default_factory=Counter)
    """Sentences by their number of words."""
    sentences_per_document: Counter[int] = field(default_factory=Counter)
    scripts: Counter[str] = field(default_factory=Counter)
    """Letters of a sample of sentences by script, such as `LATIN`."""

    def share_of_words(self, *, up_to: int) -> float:
        """Return the share of sentences with at most some words."""
        few = sum(number for words, number in self.words_per_sentence.items() if words <= up_to)
        return few / max(1, self.sentences)


@dataclass(kw_only=True, slots=True)
class Survey(Part):
    """What a corpus looks like."""

    frequent_short: list[tuple[str, int]] = field(default_factory=list)
    """Sentences that occur more than once, with how often, the most frequent first."""
    longest: list[Sentence] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)
    """By source and language (`corpus.labels.label_of`), in a corpus of several."""
    frequent_in: dict[str, dict[str, int]] = field(default_factory=dict)
    """How often each of `frequent_short` occurs, by source and language, in a corpus of several."""


def survey_corpus(folder: Path, *, seed: int = 0) -> Survey:
    """Read a corpus and return what it looks like.

    Raises:
        ArtifactError: The folder is not a corpus, or a shard is missing or damaged.
    """
    manifest = read_manifest(folder, kind=KIND, format_version=FORMAT_VERSION)
    sizes = _sentences_by_label(manifest)
    parts = {label: Part(sentences=total) for label, total in sizes.items()}
    num_random = max(_FEWEST_RANDOM, NUM_RANDOM // len(parts))
    wanted = {
        label: set(random.Random(seed).sample(range(total), min(num_random, total))) for label, total in sizes.items()
    }
    samples = max(_FEWEST_SCRIPT_SAMPLES, _SCRIPT_SAMPLES // len(parts))
    every = {label: max(1, total // samples) for label, total in sizes.items()}
    most_counted = _MAX_COUNTED // len(parts)
    short: defaultdict[str, Counter[str]] = defaultdict(Counter)
    longest: list[tuple[int, int, str, str]] = []
    positions = {label: numbers() for label in parts}
    order = numbers()
    for document in _documents(folder):
        label = label_of(document.id) if len(parts) > 1 else next(iter(parts))
        part, counted = parts[label], short[label]
        part.sentences_per_document[len(document.sentences)] += 1
        for text, place in zip(document.sentences, positions[label], strict=False):
            part.words_per_sentence[text.count(" ") + 1] += 1
            size = len(text)
            if size <= SHORT_CHARACTERS:
                counted[text] += 1
            if len(longest) < NUM_LONGEST or size > longest[0][0]:
                entry = (size, -next(order), document.id, text)
                (heapq.heappush if len(longest) < NUM_LONGEST else heapq.heappushpop)(longest, entry)
            if place in wanted[label]:
                part.random.append(Sentence(document.id, text))
            if place % every[label] == 0:
                part.scripts.update(map(script_of, filter(str.isalpha, text)))
        if len(counted) > most_counted:  # what occurred once so far is not among the most frequent of a large corpus
            short[label] = Counter({text: number for text, number in counted.items() if number > 1})
    survey = _whole(parts)
    survey.longest = [Sentence(name, text) for _, _, name, text in sorted(longest, reverse=True)]
    _add_frequent(survey, short)
    return survey


def _sentences_by_label(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of sentences of each source and language; of a corpus of one as a whole, under no name."""
    found = {
        label: sum(part["counts"].get(f"{split}/sentences", 0) for split in _SPLITS)
        for label, part in manifest.get("sources", {"parts": {}})["parts"].items()
    }
    return found if len(found) > 1 else {"": sum(manifest["counts"][split]["sentences"] for split in _SPLITS)}


def _documents(folder: Path) -> Iterator[Document]:
    for split in _SPLITS:
        yield from read_documents(folder, split)


def _whole(parts: dict[str, Part]) -> Survey:
    survey = Survey(sentences=sum(part.sentences for part in parts.values()))
    for part in parts.values():
        survey.random += part.random
        survey.words_per_sentence.update(part.words_per_sentence)
        survey.sentences_per_document.update(part.sentences_per_document)
        survey.scripts.update(part.scripts)
    if len(parts) > 1:
        survey.parts = parts
    return survey


def _add_frequent(survey: Survey, short: Mapping[str, Counter[str]]) -> None:
    total: Counter[str] = Counter()
    for counted in short.values():
        total.update(counted)
    frequent = [(text, number) for text, number in total.items() if number > 1]
    survey.frequent_short = sorted(frequent, key=lambda entry: (-entry[1], entry[0]))[:NUM_FREQUENT]
    if survey.parts:
        survey.frequent_in = {
            text: {label: short[label][text] for label in survey.parts if label in short and short[label][text]}
            for text, _ in survey.frequent_short
        }


@cache
def script_of(letter: str) -> str:
    """Return the script of a letter by its name.

    Example:
        >>> script_of("a"), script_of("я"), script_of("字")
        ('LATIN', 'CYRILLIC', 'CJK')
    """
    return unicodedata.name(letter, "OTHER").split(" ")[0].split("-")[0]


def doubling_bins(counts: Counter[int]) -> list[tuple[str, int]]:
    """Return amounts by number in bins 1, 2, 3 to 4, 5 to 8, ... up to the last that is not empty.

    Example:
        >>> doubling_bins(Counter({1: 5, 3: 1, 4: 1, 9: 2}))
        [('1', 5), ('2', 0), ('3 to 4', 2), ('5 to 8', 0), ('9 to 16', 2)]
    """
    bins: list[tuple[str, int]] = []
    low, high, most = 1, 1, max(counts, default=0)
    while low <= most:
        inside = sum(number for value, number in counts.items() if low <= value <= high)
        bins.append((str(low) if low == high else f"{low:,} to {high:,}", inside))
        low, high = high + 1, high * 2
    return bins


def quantile(counts: Counter[int], share: float) -> int:
    """Return the smallest value that a share of all does not exceed; 0 if there is nothing.

    Example:
        >>> quantile(Counter({1: 5, 3: 4, 40: 1}), 0.5), quantile(Counter({1: 5, 3: 4, 40: 1}), 0.9)
        (1, 3)
    """
    wanted, seen = share * counts.total(), 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= wanted:
            return value
    return 0


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
    lead = paragraph(f"Source: {manifest['source']}. {dropped[:1].upper()}{dropped[1:]}.", "lead")
    validation = counts["validation"]["documents"] / max(1, total["documents"])
    return lead + tiles(
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
    note = "A source in several languages has a row for each. Shares are of the characters of the train split."
    shown = [paragraph(note, "soft"), table(["source", "language", *heads], rows), _languages(found["parts"])]
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
    note = f"{number_of(len(survey.random), 'sentence')} of {count(survey.sentences)}, drawn at random."
    if not survey.parts:
        blocks = list(map(_quoted, survey.random))
    else:
        note = f"{note[:-1]} from each source by itself."
        blocks = _by_source(
            {
                f"{label}: {len(part.random)} of {count(part.sentences)}": list(map(_quoted, part.random))
                for label, part in survey.parts.items()
            }
        )
    return section("random", "Random sentences", paragraph(note, "soft"), *blocks)


def _by_source(blocks: Mapping[str, Sequence[str]]) -> list[str]:
    """Return blocks under a heading for each source; those of many sources are opened one by one."""
    if len(blocks) > _MOST_OPEN:
        return [folded(heading, "".join(of_source)) for heading, of_source in blocks.items()]
    return [block for heading, of_source in blocks.items() for block in (f"<h4>{escape(heading)}</h4>", *of_source)]


def _frequent(survey: Survey) -> str:
    note = (
        f"Sentences of at most {SHORT_CHARACTERS} characters that occur more than once. Abbreviations here mean that "
        "text was split in the middle of sentences."
    )
    rows = [
        [text, count(number), percent(number / max(1, survey.sentences)), _places(survey.frequent_in.get(text, {}))]
        for text, number in survey.frequent_short
    ]
    heads = ["sentence", "times", "of all sentences", "in"]
    shown = table(heads, rows) if rows else paragraph("None.")
    return section("frequent", "The most frequent short sentences", paragraph(note, "soft"), shown)


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
    note = "Long ones are often tables, lists, or text without marks between sentences."
    blocks = [
        quote(
            f"<p>{escape(shortened(one.text, _LONG))}</p>", f"{number_of(len(one.text), 'character')}, {one.document}"
        )
        for one in survey.longest
    ]
    return section("longest", "The longest sentences", paragraph(note, "soft"), *blocks)


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
