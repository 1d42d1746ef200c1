"""The cleaning of text before it is split into sentences: what the corpus says of itself is learned first."""

import dataclasses
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertline.corpus.document import Dropped, SourceDocument
from bertline.corpus.quality.drops import CHANGED, MARKED, excerpt
from bertline.corpus.reader import CleaningConfig
from bertline.corpus.storage import Steps, num_partitions, partition, rows_between
from bertline.foundation.engine import Counts

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
# Every match of `_BROKEN` contains a match of this pattern,
# which starts at a rare character: most text is skipped fast.
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

    >>> divided_words("He consid-\nered the well- known 20-\nyear-old")
    [('consid', 'ered'), ('well', 'known')]
    """
    found = _BROKEN.finditer(text) if _HYPHEN_OF_BROKEN.search(text) else ()
    return [(match[1].casefold(), match[4].casefold()) for match in found]


def _replaced(text: str, by: Callable[[re.Match[str]], str]) -> str:
    return _BROKEN.sub(by, text) if _HYPHEN_OF_BROKEN.search(text) else text


def wanted_forms(divided: Iterable[tuple[str, str]]) -> set[str]:
    """Return the words whose counts `forms_of` needs."""
    return {form for left, right in divided for form in (left + right, f"{left}-{right}", left, right)}


def count_forms(texts: Iterable[str], wanted: frozenset[str]) -> Counter[str]:
    """Count words that are not divided."""
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


def _tags(names: str) -> re.Pattern[str]:
    return re.compile(rf"</?(?:{'|'.join(names.split())})(?:\s[^<>]*)?/?>", re.IGNORECASE)


_Replace = str | Callable[[re.Match[str]], str]
# Kinds of markup, and what stays of each where it is removed.
_KINDS: tuple[tuple[str, re.Pattern[str], _Replace], ...] = (
    ("comment", re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL), " "),
    ("tag", _tags(_INLINE), ""),
    ("tag", _tags(_BLOCK), " "),
    # From the inside out: the pattern is used again until nothing changes.
    ("template", re.compile(r"\{\{[^{}]*\}\}|\{\|[^{}]*\|\}"), " "),
    # A link to a file or a category has no text of its own, and options where other links have theirs.
    ("link", re.compile(r"\[\[(?:File|Image|Category|Datei|Kategorie):[^\[\]]*\]\]"), " "),
    ("link", re.compile(r"\[\[([^\[\]|]*\|)?([^\[\]|]*)(?:\|[^\[\]]*)?\]\]"), r"\2"),
    (
        "entity",
        re.compile(r"&(?:[a-zA-Z][a-zA-Z0-9]{1,30}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});"),
        lambda found: html.unescape(found[0]),
    ),
    ("formula", re.compile(r"\b(?:formula|codice)_\d+\b"), ""),
    ("empty_brackets", re.compile(r"(?<!\S)\([\s,;]*\)"), ""),
    ("empty_brackets", re.compile(r"(?<!\S)\(\s*[,;][\s,;]*(?=\w)"), "("),
)
_MOST_ROUNDS = 10


def markup_in(text: str) -> dict[str, tuple[int, int]]:
    """Return the first place of each kind of markup in a text.

    >>> markup_in("{{cite}} Euler () wrote formula_53 &amp; f() <b>once</b>.")
    {'tag': (45, 48), 'template': (0, 8), 'entity': (35, 40), 'formula': (24, 34), 'empty_brackets': (15, 17)}
    >>> markup_in("if a < b and (c, d) or x[[0]]: f()")
    {'link': (24, 29)}
    """
    spans: dict[str, tuple[int, int]] = {}
    if _MAY_HAVE.search(text):
        for kind, pattern, _ in _KINDS:
            if kind not in spans and (place := pattern.search(text)):
                spans[kind] = place.span()
    return spans


def without_markup(text: str) -> str:
    """Remove markup: tags and templates go, links keep their text, entities become their character.

    >>> without_markup("{{cite|{{a}}}}Euler () saw [[Basel|the city]] &amp; H<sub>2</sub>O<br/>here")
    ' Euler  saw the city & H2O here'
    """
    for _ in range(_MOST_ROUNDS):
        before = text
        for _, pattern, replacement in _KINDS:
            text = pattern.sub(replacement, text)
        if text == before:
            break
    return text


# Lines that recur in many documents: notices, menus, headers and footers of pages.

# Words from which a whole sentence may be boilerplate: "Yes, sir." is in every novel.
_FEWEST_OF_SENTENCE = 5
# Words from which a whole sentence may be boilerplate though the line before did not end: a notice below a title.
_FEWEST_OF_NOTICE = 7
_DIGITS = re.compile(r"\d+")
_SENTENCE_ENDS = (".", "!", "?", "\u3002", "\u2026", ",", ";", ":", '"', "'", "\u201d", "\u2019")


def line_key(line: str) -> int:
    """Return a hash that is equal for lines that differ only in case, white space and numbers.

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


# Distinct divided words that the corpus is asked about, in about 300 MB; later ones count as unseen.
_MOST_DIVIDED = 1_000_000
_LINES, _REPEATED, _DIVIDED, _FORMS, _PLAN = "lines.npy", "repeated.npy", "divided.json", "forms.json", "plan.json"

ReadShard = Callable[[Path], Iterable[SourceDocument]]
"""Reads the documents of a shard, named by its folder."""


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """What was learned from the corpus."""

    forms: dict[str, Forms]
    repeated: frozenset[int]


def learn_cleaning(config: CleaningConfig, steps: Steps, shards: Sequence[Path], read: ReadShard) -> Path | None:
    """Read the corpus for what its cleaning needs: once, and once more for how divided words are written.

    Returns:
        The file of the plan, for `read_plan`; None if nothing is to be learned.
    """
    if not config.learns:
        return None
    survey = steps.run("survey", partial(_survey, config=config, read=read), shards, "repeated lines, divided words")
    repeated: list[Path] = []
    if config.repeated_lines is not None:
        number = num_partitions(len(shards))
        lines = [folder / _LINES for folder in survey.folders]
        repeat = partial(_repeated, lines=lines, number=number, documents=config.repeated_lines)
        repeated = [folder / _REPEATED for folder in steps.run("repeated_lines", repeat, range(number)).folders]
    divided = [folder / _DIVIDED for folder in survey.folders]
    count = partial(_count, divided=divided, read=read)
    counts = steps.run("forms", count, shards if config.join_hyphens else (), "how divided words are written")
    forms = [folder / _FORMS for folder in counts.folders]
    (plan,) = steps.run("plan", partial(_learn, divided=divided, repeated=repeated), [tuple(forms)]).folders
    return plan / _PLAN


def _survey(shard: Path, out: Path, *, config: CleaningConfig, read: ReadShard) -> Counts:
    """Write the divided words of a shard, and in how many of its documents each line is; the task of a shard."""
    divided: dict[tuple[str, str], None] = {}
    keys: Counter[int] = Counter()
    for document in read(shard):
        if config.join_hyphens:
            for paragraph in document.paragraphs:
                divided.update(dict.fromkeys(divided_words(paragraph)))
        if config.repeated_lines is not None:
            lines = {line for paragraph in document.paragraphs for _, line in judged_lines(paragraph)}
            keys.update(set(map(line_key, lines)))
    (out / _DIVIDED).write_text(json.dumps(list(divided)), encoding="utf-8")
    np.save(out / _LINES, np.array(sorted(keys.items()), dtype=np.uint64).reshape(-1, 2).T)
    return {}


def _repeated(index: int, out: Path, *, lines: Sequence[Path], number: int, documents: int) -> Counts:
    """Write which lines are in enough documents; the task of a partition of their keys."""
    keys, counts = np.concatenate(rows_between(lines, *partition(index, number)), axis=1)
    distinct, places = np.unique(keys, return_inverse=True)
    np.save(out / _REPEATED, distinct[np.bincount(places, counts, len(distinct)) >= documents])
    return {}


def _divided_in(files: Sequence[Path]) -> list[tuple[str, str]]:
    pairs = ((left, right) for file in files for left, right in json.loads(file.read_bytes()))
    return list(dict.fromkeys(islice(pairs, _MOST_DIVIDED)))


def _count(shard: Path, out: Path, *, divided: Sequence[Path], read: ReadShard) -> Counts:
    """Count how a shard writes divided words; the task of a shard."""
    wanted = frozenset(wanted_forms(_divided_in(divided)))
    counts: Counter[str] = Counter()
    documents = iter(read(shard))
    while batch := list(islice(documents, 1000)):
        counts.update(count_forms((text for document in batch for text in document.paragraphs), wanted))
    (out / _FORMS).write_text(json.dumps(counts), encoding="utf-8")
    return {}


def _learn(forms: tuple[Path, ...], out: Path, *, divided: Sequence[Path], repeated: Sequence[Path]) -> Counts:
    counts: Counter[str] = Counter()
    for file in forms:
        counts.update(json.loads(file.read_bytes()))
    lines = [key for file in repeated for key in np.load(file).tolist()]
    plan = {"forms": forms_of(_divided_in(divided), counts), "repeated": lines}
    (out / _PLAN).write_text(json.dumps(plan), encoding="utf-8")
    return {}


def read_plan(path: Path | None) -> CleaningPlan:
    """Read what `learn_cleaning` wrote."""
    if path is None:
        return CleaningPlan({}, frozenset())
    content = json.loads(path.read_bytes())
    forms = {divided: Forms(*known) for divided, known in content["forms"].items()}
    return CleaningPlan(forms, frozenset(content["repeated"]))


def clean_document(
    document: SourceDocument, *, config: CleaningConfig, plan: CleaningPlan
) -> tuple[SourceDocument | None, list[Dropped]]:
    """Clean the paragraphs of a document; return it with everything to count."""
    changes: list[Dropped] = []
    paragraphs = tuple(_cleaned(paragraph, config, plan, changes) for paragraph in document.paragraphs)
    changes = [change._replace(where=document.id) for change in changes]
    if reasons := [change for change in changes if change.reason.startswith("documents/")]:
        return None, reasons[:1]
    if paragraphs == document.paragraphs:
        return document, changes
    return dataclasses.replace(document, paragraphs=paragraphs), changes


def _cleaned(text: str, config: CleaningConfig, plan: CleaningPlan, changes: list[Dropped]) -> str:
    if plan.repeated:
        repeated = {number: line for number, line in judged_lines(text) if line_key(line) in plan.repeated}
        changes += (Dropped("lines/repeated", text=line) for line in repeated.values())
        text = "\n".join(line for number, line in enumerate(text.split("\n")) if number not in repeated)
    if config.fix_mojibake:
        text = _without_mojibake(text, changes)
    if config.join_hyphens:
        before = text
        text, place = join_hyphens(text, plan.forms)
        if place is not None:
            changes.append(Dropped(f"{CHANGED}hyphens", text=excerpt(before, *place.span())))
    if config.markup != "keep":
        spans = markup_in(text)
        if spans and config.markup == "drop":
            kind, place_of_it = next(iter(spans.items()))
            note = kind.replace("_", " ")
            changes.append(Dropped("documents/markup", text=excerpt(text, *place_of_it), note=note))
            return text
        counted = CHANGED if config.markup == "remove" else MARKED
        changes += (Dropped(f"{counted}{kind}", text=excerpt(text, *place)) for kind, place in spans.items())
        if spans and config.markup == "remove":
            text = without_markup(text)
    return text


def _without_mojibake(text: str, changes: list[Dropped]) -> str:
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
        note = excerpt(fixed, place, place)
        changes.append(Dropped(f"{CHANGED}mojibake", text=excerpt(text, place, place), note=note))
    return fixed
