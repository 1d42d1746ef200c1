r"""Words that a hyphen divides at the end of a line are joined; true compounds keep it.

Which of the two a word is, the corpus says: "consid-\nered" is written "considered" elsewhere, "well-\nknown" is
written "well-known". The same holds for text whose lines were joined before it came here ("consid- ered"), where
nothing but such evidence changes anything: "pre- and post-war" stays.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

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
        found = _BROKEN.match(text, start) if start >= end else None
        if found is not None:
            end = found.end()
            yield found


def _replaced(text: str, by: Callable[[re.Match[str]], str]) -> str:
    """Return a text with its divided words replaced."""
    parts, end = [], 0
    for found in broken_words(text):
        parts += [text[end : found.start()], by(found)]
        end = found.end()
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

    Args:
        text: A paragraph with the line breaks of its source.
        forms: What `forms_of` says of the corpus.

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
