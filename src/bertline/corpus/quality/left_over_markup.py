"""Markup that a reader or an extractor left in the text: templates, placeholders of formulas, entities, tags."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass

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
    found: dict[str, tuple[int, int]] = {}
    if _MAY_HAVE.search(text):
        for markup in _KINDS:
            if markup.kind not in found and (place := markup.pattern.search(text)):
                found[markup.kind] = place.span()
    return found


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
