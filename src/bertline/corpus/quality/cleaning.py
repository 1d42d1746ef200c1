"""The cleaning of text before it is split into sentences: a pure function of a document."""

import dataclasses
import html
import re
from collections.abc import Callable, Container, Iterable

from bertline.corpus.document import Dropped, SourceDocument
from bertline.corpus.quality.drops import CHANGED, MARKED, excerpt
from bertline.corpus.reader import CleaningConfig

# Words that a hyphen divides at the end of a line are joined; true compounds keep it.

_SOFT_HYPHEN = "\u00ad"
_LETTERS = r"[^\W\d_]"
_WORD = re.compile(rf"{_LETTERS}+(?:-{_LETTERS}+)*")
_DIVIDED = re.compile(rf"(?<![\w-])({_WORD.pattern})([-\u2010\u00ad])\s*\n\s*({_LETTERS}{{2,}}(?:-{_LETTERS}+)*)")
# What stands between "pre-" and "post-war" in languages of the Latin alphabet: such a hyphen ends a
# word for good.
_CONJUNCTIONS = "and or to nor und oder bis sowie et ou en of y o e i och og eller ja oraz lub"
_SUSPENDING = frozenset(_CONJUNCTIONS.split())


def whole_words(paragraphs: Iterable[str]) -> frozenset[str]:
    r"""Return the words that are not divided, in lower case.

    >>> sorted(whole_words(["He consid-\nered the well-known case"]))
    ['case', 'he', 'the', 'well-known']
    """
    return frozenset(word for text in paragraphs for word in _WORD.findall(_DIVIDED.sub(" ", text).casefold()))


def join_hyphens(text: str, words: Container[str]) -> str:
    r"""Join the words of a text that a hyphen divides at the end of a line.

    A hyphen stays if the document has the word with it, or both halves as words (a compound), and not the joined word;
    also before a capital.

    Args:
        words: The `whole_words` of the document.

    >>> join_hyphens("It is consid-\nered well-\nknown, pre- and post-war.", {"well-known"})
    'It is considered well-known, pre- and post-war.'
    """

    def whole(divided: re.Match[str]) -> str:
        left, hyphen, right = divided.groups()
        first, second = left.casefold(), right.casefold()
        if hyphen == _SOFT_HYPHEN:
            return left + right
        if second in _SUSPENDING:
            return divided[0]
        is_compound = f"{first}-{second}" in words or (first in words and second in words)
        keeps = not right.islower() or (is_compound and first + second not in words)
        return f"{left}-{right}" if keeps else left + right

    return _DIVIDED.sub(whole, text)


# Markup that a reader or an extractor left in the text: templates, placeholders of formulas,
# entities, tags.

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
    # A link to a file or a category has no text of its own, and options where other links have
    # theirs.
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
    for _ in range(10):
        before = text
        for _, pattern, replacement in _KINDS:
            text = pattern.sub(replacement, text)
        if text == before:
            break
    return text


def clean_document(document: SourceDocument, *, config: CleaningConfig) -> tuple[SourceDocument, list[Dropped]]:
    """Clean the paragraphs of a document; return it with everything to count."""
    changes: list[Dropped] = []
    words = whole_words(document.paragraphs) if config.join_hyphens else frozenset()
    paragraphs = tuple(_cleaned(paragraph, config, words, changes) for paragraph in document.paragraphs)
    changes = [change._replace(where=document.id) for change in changes]
    return dataclasses.replace(document, paragraphs=paragraphs), changes


def _cleaned(text: str, config: CleaningConfig, words: frozenset[str], changes: list[Dropped]) -> str:
    if config.fix_mojibake and not text.isascii():
        text = _without_mojibake(text, changes)
    if config.join_hyphens and (place := _DIVIDED.search(text)):
        changes.append(Dropped(f"{CHANGED}hyphens", text=excerpt(text, *place.span())))
        text = join_hyphens(text, words)
    if config.markup != "keep":
        spans = markup_in(text)
        counted = CHANGED if config.markup == "remove" else MARKED
        changes += (Dropped(f"{counted}{kind}", text=excerpt(text, *place)) for kind, place in spans.items())
        if spans and config.markup == "remove":
            text = without_markup(text)
    return text


def _without_mojibake(text: str, changes: list[Dropped]) -> str:
    """Decode again what was decoded wrongly, line by line, where ftfy finds it."""
    import ftfy

    fixed = "\n".join(map(ftfy.fix_encoding, text.split("\n")))
    if fixed != text:
        place = next((at for at, (a, b) in enumerate(zip(text, fixed, strict=False)) if a != b), 0)
        note = excerpt(fixed, place, place)
        changes.append(Dropped(f"{CHANGED}mojibake", text=excerpt(text, place, place), note=note))
    return fixed
