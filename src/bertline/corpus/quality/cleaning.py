"""The cleaning of text before it is split into sentences: what the corpus says of itself is learned first."""

from __future__ import annotations

import dataclasses
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from bertline.corpus.document import SourceDocument
from bertline.corpus.preparation import PreparedDocument
from bertline.corpus.quality.drops import CHANGED, MARKED, Change, DropSamples, excerpt
from bertline.corpus.quality.selection import Prepare
from bertline.corpus.reader import CleaningConfig
from bertline.foundation.files import write_json
from bertline.foundation.parallel import ordered_map
from bertline.foundation.progress import progress

# Words that a hyphen divides at the end of a line are joined; true compounds keep it.
#
# Which of the two a word is, the corpus says: "consid-\nered" is written "considered" elsewhere, "well-\nknown" is
# written "well-known". The same holds for text whose lines were joined before it came here ("consid- ered"), where
# nothing but such evidence changes anything: "pre- and post-war" stays.

_SOFT_HYPHEN = "\u00ad"
_LETTERS = r"[^\W\d_]"
_BROKEN = re.compile(
    rf"(?<![\w-])({_LETTERS}+(?:-{_LETTERS}+)*)([-\u2010\u00ad])([^\S\n]*\n\s*|[^\S\n]+)({_LETTERS}{{2,}}(?:-{_LETTERS}+)*)"
)
# What every match of `_BROKEN` has. It begins with what is rare, so that text is searched ten times as fast.
_HYPHEN_OF_BROKEN = re.compile(rf"[-\u2010\u00ad](?<={_LETTERS}.)\s+{_LETTERS}{{2}}")
_WORD = re.compile(rf"{_LETTERS}+(?:-{_LETTERS}+)*")
# What stands between "pre-" and "post-war" in languages of the Latin alphabet: such a hyphen ends a word for good.
_CONJUNCTIONS = "and or to nor und oder bis sowie et ou en of y o e i och og eller ja oraz lub"
_SUSPENDING = frozenset(_CONJUNCTIONS.split())


class Forms(NamedTuple):
    """How often the corpus writes a divided word, where it is not divided."""

    joined: int
    hyphenated: int
    both_are_words: bool
    """Whether each half occurs as a word of its own."""


UNSEEN = Forms(0, 0, both_are_words=False)


def divided_words(text: str) -> list[tuple[str, str]]:
    r"""Return the halves of what may be divided words, in lower case.

    Example:
        >>> divided_words("He consid-\nered the well- known 20-\nyear-old")
        [('consid', 'ered'), ('well', 'known')]
    """
    return [(found[1].casefold(), found[4].casefold()) for found in broken_words(text)]


def broken_words(text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of `_BROKEN`, as `finditer` finds them, from the hyphens backwards to where the word begins."""
    end = 0
    for hyphen in _HYPHEN_OF_BROKEN.finditer(text):
        start = hyphen.start()
        while start and (text[start - 1] == "-" or (text[start - 1].isalnum() and not text[start - 1].isdecimal())):
            start -= 1
        match = _BROKEN.match(text, start) if start >= end else None
        if match is not None:
            end = match.end()
            yield match


def _replaced(text: str, by: Callable[[re.Match[str]], str]) -> str:
    """Return a text with its divided words replaced."""
    parts, end = [], 0
    for match in broken_words(text):
        parts += [text[end : match.start()], by(match)]
        end = match.end()
    return "".join([*parts, text[end:]]) if parts else text


def wanted_forms(divided: Iterable[tuple[str, str]]) -> set[str]:
    """Return the words whose counts `forms_of` needs."""
    return {form for left, right in divided for form in (left + right, f"{left}-{right}", left, right)}


def count_forms(texts: Iterable[str], wanted: frozenset[str]) -> Counter[str]:
    r"""Count words that are not divided.

    Example:
        >>> count_forms(["Consid-\nered, considered."], frozenset({"considered", "consid"}))
        Counter({'considered': 1})
    """
    whole = "\n".join(_replaced(text, lambda _: " ") for text in texts)
    words: Counter[str] = Counter()
    for stretch, count in Counter(whole.casefold().split()).items():  # most recur, and no word goes on over white space
        for word in (stretch,) if stretch.isalpha() else _WORD.findall(stretch):
            if word in wanted:
                words[word] += count
    return words


def forms_of(divided: Iterable[tuple[str, str]], counts: Mapping[str, int]) -> dict[str, Forms]:
    """Return what is known of each divided word, by its halves with a space between."""
    found = {}
    for left, right in divided:
        words = counts.get(left, 0) > 0 and counts.get(right, 0) > 0
        forms = Forms(counts.get(left + right, 0), counts.get(f"{left}-{right}", 0), words)
        if forms != UNSEEN:
            found[f"{left} {right}"] = forms
    return found


def join_hyphens(text: str, forms: Mapping[str, Forms]) -> tuple[str, re.Match[str] | None]:
    r"""Join the divided words of a text.

    A word that the corpus writes both ways is joined if that is more frequent. One that it writes in no way is joined
    at the end of a line, unless both halves are words (a rare compound) or the second one has a capital. Of two words
    of which the second repeats the first and goes on ("fall- falling"), none is divided, and they stay as they are.

    Returns:
        The text, and the first place that was changed.

    Example:
        >>> forms = {"consid ered": Forms(9, 0, False), "well known": Forms(0, 3, True)}
        >>> join_hyphens("It is consid-\nered well-\nknown, pre- and post-war.", forms)[0]
        'It is considered well-known, pre- and post-war.'
    """
    first: list[re.Match[str]] = []

    def whole(found: re.Match[str]) -> str:
        between = _between(found, forms)
        if between is None:
            return found[0]
        first.append(found)
        return found[1] + between + found[4]

    text = _replaced(text, whole)
    return text, first[0] if first else None


def _between(found: re.Match[str], forms: Mapping[str, Forms]) -> str | None:
    """Return what belongs between the halves; None leaves the place as it is."""
    left, hyphen, space, right = found.groups()
    if hyphen == _SOFT_HYPHEN:
        return ""
    known = forms.get(f"{left.casefold()} {right.casefold()}", UNSEEN)
    has_capital = not right.islower() and not (left.isupper() and right.isupper())
    if known.joined > known.hyphenated and not has_capital:
        return ""
    if known.hyphenated:
        return "-"
    if "\n" not in space or right.casefold() in _SUSPENDING:
        return None
    if known.both_are_words and left.casefold() != right.casefold() and right.casefold().startswith(left.casefold()):
        return None  # said twice, not divided: "to fall- falling, he saw it"
    return "-" if known.both_are_words or has_capital else ""


# Markup that a reader or an extractor left in the text: templates, placeholders of formulas, entities, tags.

_INLINE = (
    "a abbr b bdi bdo big cite code del dfn em font i ins kbd mark math nobr nowiki q s samp small span strike strong "
    "sub sup tt u var"
)
_BLOCK = (
    "article aside blockquote body br button caption center col dd div dl dt fieldset figcaption figure footer form "
    "gallery h1 h2 h3 h4 h5 h6 head header hr html iframe img input label li link main meta nav noscript ol option p "
    "pre ref references script section select style table tbody td template textarea tfoot th thead title tr ul"
)
_MAY_HAVE = re.compile(r"[{\[<&]|formula_|codice_|\([\s,;]*[,;)]")


@dataclass(frozen=True, slots=True)
class Markup:
    """One kind of markup."""

    kind: str
    pattern: re.Pattern[str]
    text: Callable[[re.Match[str]], str]
    """What stays of it where it is removed."""


def _names(names: str) -> str:
    return "|".join(names.split())


_KINDS = (
    Markup("comment", re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL), lambda found: " "),
    Markup("tag", re.compile(rf"</?(?:{_names(_INLINE)})(?:\s[^<>]*)?/?>", re.IGNORECASE), lambda found: ""),
    Markup("tag", re.compile(rf"</?(?:{_names(_BLOCK)})(?:\s[^<>]*)?/?>", re.IGNORECASE), lambda found: " "),
    # From the inside out: the pattern is used again until nothing changes.
    Markup("template", re.compile(r"\{\{[^{}]*\}\}|\{\|[^{}]*\|\}"), lambda found: " "),
    # A link to a file or a category has no text of its own, and options where other links have theirs.
    Markup("link", re.compile(r"\[\[(?:File|Image|Category|Datei|Kategorie):[^\[\]]*\]\]"), lambda found: " "),
    Markup("link", re.compile(r"\[\[([^\[\]|]*\|)?([^\[\]|]*)(?:\|[^\[\]]*)?\]\]"), lambda found: found[2]),
    Markup(
        "entity",
        re.compile(r"&(?:[a-zA-Z][a-zA-Z0-9]{1,30}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});"),
        lambda found: html.unescape(found[0]),
    ),
    Markup("formula", re.compile(r"\b(?:formula|codice)_\d+\b"), lambda found: ""),
    Markup("empty_brackets", re.compile(r"(?<!\S)\([\s,;]*\)"), lambda found: ""),
    Markup("empty_brackets", re.compile(r"(?<!\S)\(\s*[,;][\s,;]*(?=\w)"), lambda found: "("),
)
_MOST_ROUNDS = 10


def markup_in(text: str) -> dict[str, tuple[int, int]]:
    """Return the first place of each kind of markup in a text.

    Example:
        >>> markup_in("{{cite}} Euler () wrote formula_53 &amp; f() <b>once</b>.")
        {'tag': (45, 48), 'template': (0, 8), 'entity': (35, 40), 'formula': (24, 34), 'empty_brackets': (15, 17)}
        >>> markup_in("if a < b and (c, d) or x[[0]]: f()")
        {'link': (24, 29)}
    """
    spans: dict[str, tuple[int, int]] = {}
    if _MAY_HAVE.search(text):
        for markup in _KINDS:
            if markup.kind not in spans and (place := markup.pattern.search(text)):
                spans[markup.kind] = place.span()
    return spans


def without_markup(text: str) -> str:
    """Remove markup: tags and templates go, links keep their text, entities become their character.

    Example:
        >>> without_markup("{{cite|{{a}}}}Euler () saw [[Basel|the city]] &amp; H<sub>2</sub>O<br/>here")
        ' Euler  saw the city & H2O here'
    """
    for _ in range(_MOST_ROUNDS):
        before = text
        for markup in _KINDS:
            text = markup.pattern.sub(markup.text, text)
        if text == before:
            break
    return text


# Lines that recur in many documents: notices, menus, headers and footers of pages.
#
# References:
#     Manku and Motwani, "Approximate frequency counts over data streams", 2002, section 4.2 (lossy counting).

MAX_COUNTED = 1_000_000
"""Distinct lines that are counted at a time, in about 100 MB."""
_FEWEST_OF_SENTENCE = 5
"""Words from which a whole sentence may be boilerplate: "Yes, sir." is in every novel."""
_FEWEST_OF_NOTICE = 7
"""Words from which a whole sentence may be boilerplate though the line before did not end: a notice below a title."""
_DIGITS = re.compile(r"\d+")
_SENTENCE_ENDS = (".", "!", "?", "\u3002", "\u2026", ",", ";", ":", '"', "'", "\u201d", "\u2019")


def line_key(line: str) -> int:
    """Return a hash that is equal for lines that differ only in case, white space and numbers.

    Example:
        >>> line_key("Page 3 of 12") == line_key("page  4 of 9")
        True
    """
    text = " ".join(_DIGITS.sub("0", line.casefold()).split())
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest(), "little")


def judged_lines(paragraph: str) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a paragraph that may be boilerplate, with their numbers.

    Lines of running text are not judged, since any short one may recur: those that begin in lower case, and those that
    end a sentence which the line before began, unless they have seven words: such a notice stands below a title. A
    sentence of fewer than five words is not judged either.

    Example:
        >>> list(judged_lines("Page 3 of 12\nIt was said by\nMr. Holmes.\nof course"))
        [(0, 'Page 3 of 12'), (1, 'It was said by')]
    """
    before = ""
    for number, line in enumerate(paragraph.split("\n")):
        text = line.strip()
        if text and not text[0].islower():
            goes_on = before and not before.endswith(_SENTENCE_ENDS)
            fewest = _FEWEST_OF_NOTICE if goes_on else _FEWEST_OF_SENTENCE
            if not text.endswith(_SENTENCE_ENDS) or len(text.split()) >= fewest:
                yield number, text
        before = text


class LineCounts:
    """Number of documents with each line, in bounded memory; of very many distinct lines the rare ones are forgotten.

    The result depends on the documents and their order alone.
    """

    def __init__(self, max_counted: int = MAX_COUNTED) -> None:
        self._counts: dict[int, int] = {}
        self._max_counted = max_counted
        self._forgotten = 0
        """Occurrences that a line may have lost."""
        self._lost_before: dict[int, int] = {}
        """`_forgotten` when each line that is counted was entered, if it was not zero."""

    def add(self, keys: Iterable[int]) -> None:
        """Count the keys of the distinct lines of a document."""
        counts = self._counts
        for key in keys:
            if key in counts:
                counts[key] += 1
            else:
                counts[key] = 1
                if self._forgotten:
                    self._lost_before[key] = self._forgotten
        if len(counts) > self._max_counted:
            self._forget()

    def _forget(self) -> None:
        while len(self._counts) > self._max_counted // 2:
            self._forgotten += 1
            lost = self._lost_before
            self._counts = {
                key: count for key, count in self._counts.items() if count + lost.get(key, 0) > self._forgotten
            }
            self._lost_before = {key: lost[key] for key in self._counts if key in lost}

    def at_least(self, documents: int) -> list[int]:
        """Return the keys of the lines that occur in as many documents, sorted."""
        return sorted(key for key, count in self._counts.items() if count >= documents)


def without_lines(paragraph: str, repeated: Set[int]) -> tuple[str, list[str]]:
    """Remove repeated lines.

    Returns:
        The paragraph without them, and the lines.
    """
    repeated_lines = {number: line for number, line in judged_lines(paragraph) if line_key(line) in repeated}
    if not repeated_lines:
        return paragraph, []
    other_lines = (line for number, line in enumerate(paragraph.split("\n")) if number not in repeated_lines)
    return "\n".join(other_lines), list(repeated_lines.values())


Batches = Callable[[], Iterable[list[SourceDocument]]]
_MOST_DIVIDED = 1_000_000
"""Distinct divided words that the corpus is asked about, in about 300 MB; later ones count as unseen."""
_PLAN, _WANTED = "cleaning.json", "divided_words.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """What was learned from the corpus."""

    forms: dict[str, Forms]
    repeated: frozenset[int]


def learn_cleaning(config: CleaningConfig, read: Batches, folder: Path, *, num_workers: int) -> Path | None:
    """Read the corpus for what its cleaning needs: once, and once more if words are divided.

    Args:
        config: What to clean.
        read: Reads the corpus from its beginning, in batches that do not depend on the number of workers.
        folder: Where the plan is written, for workers to read.
        num_workers: Number of processes; it does not affect the result.

    Returns:
        The file of the plan; None if nothing is to be learned.
    """
    if not config.learns:
        return None
    divided: dict[tuple[str, str], None] = {}
    lines = LineCounts()
    survey = partial(_survey, config=config)
    batches = progress(read(), description="repeated lines and divided words, batches")
    for words, of_documents in ordered_map(survey, batches, num_workers=num_workers):
        if len(divided) < _MOST_DIVIDED:
            divided.update(dict.fromkeys(words))
        for keys in of_documents:
            lines.add(keys)
    counts: Counter[str] = Counter()
    if divided:
        wanted = folder / _WANTED
        write_json(wanted, sorted(wanted_forms(divided)))
        count = partial(_count, wanted=str(wanted))
        batches = progress(read(), description="how divided words are written, batches")
        for word_counts in ordered_map(count, batches, num_workers=num_workers):
            counts.update(word_counts)
    plan = folder / _PLAN
    repeated = [] if config.repeated_lines is None else lines.at_least(config.repeated_lines)
    write_json(plan, {"forms": forms_of(divided, counts), "repeated": repeated})
    return plan


def _survey(batch: list[SourceDocument], config: CleaningConfig) -> tuple[list[tuple[str, str]], list[list[int]]]:
    divided: dict[tuple[str, str], None] = {}
    keys: list[list[int]] = []
    for document in batch:
        if config.join_hyphens:
            for paragraph in document.paragraphs:
                divided.update(dict.fromkeys(divided_words(paragraph)))
        if config.repeated_lines is not None:
            lines = {line for paragraph in document.paragraphs for _, line in judged_lines(paragraph)}
            keys.append(sorted(set(map(line_key, lines))))
    return list(divided), keys


def _count(batch: list[SourceDocument], wanted: str) -> Counter[str]:
    return count_forms((paragraph for document in batch for paragraph in document.paragraphs), _wanted(wanted))


@lru_cache(maxsize=1)
def _wanted(path: str) -> frozenset[str]:
    return frozenset(json.loads(Path(path).read_text(encoding="utf-8")))


@lru_cache(maxsize=1)
def _plan(path: str | None) -> Plan:
    """Read what `learn_cleaning` wrote; each process reads it once."""
    if path is None:
        return Plan({}, frozenset())
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    forms = {divided: Forms(*known) for divided, known in content["forms"].items()}
    return Plan(forms, frozenset(content["repeated"]))


def prepare_cleaned(prepare: Prepare, config: CleaningConfig, plan: Path | None) -> Prepare:
    """Return a preparation that cleans its batches first, if anything is to be cleaned."""
    return PrepareCleaned(prepare, config, None if plan is None else str(plan)) if config.is_active else prepare


@dataclass(frozen=True, slots=True)
class PrepareCleaned:
    """Cleans a batch and prepares it; a pure function that can be sent to workers."""

    prepare: Prepare
    config: CleaningConfig
    plan: str | None
    """File of `learn_cleaning`."""

    def __call__(self, batch: list[SourceDocument]) -> list[PreparedDocument]:
        plan = _plan(self.plan)
        cleaned = [cleaned_document(document, self.config, plan) for document in batch]
        prepared = self.prepare([document for document, _ in cleaned])
        return [
            dataclasses.replace(document, changes=changes) if changes else document
            for document, (_, changes) in zip(prepared, cleaned, strict=True)
        ]


def cleaned_document(
    document: SourceDocument, config: CleaningConfig, plan: Plan
) -> tuple[SourceDocument, tuple[Change, ...]]:
    """Clean the paragraphs of a document; return it with everything to count."""
    changes: list[Change] = []
    paragraphs = tuple(_cleaned(paragraph, config, plan, changes) for paragraph in document.paragraphs)
    if paragraphs == document.paragraphs:
        return document, tuple(changes)
    return dataclasses.replace(document, paragraphs=paragraphs), tuple(changes)


def _cleaned(text: str, config: CleaningConfig, plan: Plan, changes: list[Change]) -> str:
    if plan.repeated:
        text, lines = without_lines(text, plan.repeated)
        changes += (Change("lines/repeated", line) for line in lines)
    if config.fix_mojibake:
        text = _without_mojibake(text, changes)
    if config.join_hyphens:
        before = text
        text, place = join_hyphens(text, plan.forms)
        if place is not None:
            changes.append(Change(f"{CHANGED}hyphens", excerpt(before, *place.span())))
    if config.markup != "keep":
        spans = markup_in(text)
        if spans and config.markup == "drop":
            kind, place_of_it = next(iter(spans.items()))
            changes.append(Change("documents/markup", excerpt(text, *place_of_it), kind.replace("_", " ")))
            return text
        counted = CHANGED if config.markup == "remove" else MARKED
        changes += (Change(f"{counted}{kind}", excerpt(text, *place)) for kind, place in spans.items())
        if spans and config.markup == "remove":
            text = without_markup(text)
    return text


def _without_mojibake(text: str, changes: list[Change]) -> str:
    """Decode again what was decoded wrongly, line by line, where ftfy's quick test finds it."""
    if text.isascii():
        return text
    import ftfy
    from ftfy.badness import is_bad

    if not is_bad(text):
        return text
    fixed = "\n".join(ftfy.fix_encoding(line) if is_bad(line) else line for line in text.split("\n"))
    if fixed != text:
        place = next((at for at, (a, b) in enumerate(zip(text, fixed, strict=False)) if a != b), 0)
        changes.append(Change(f"{CHANGED}mojibake", excerpt(text, place, place), excerpt(fixed, place, place)))
    return fixed


def counted_changes(
    documents: Iterable[PreparedDocument], dropped: Counter[str], samples: DropSamples
) -> Iterator[PreparedDocument]:
    """Count what cleaning changed, and drop the documents that it says."""
    for document in documents:
        leaves = next((change for change in document.changes if change.drops_document), None)
        for change in document.changes if leaves is None else (leaves,):
            dropped[change.reason] += 1
            samples.add(change.reason, document.id, change.text, change.note)
        if leaves is None:
            yield document
