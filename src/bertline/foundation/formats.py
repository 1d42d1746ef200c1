"""Text for people: formats of numbers and durations, and exported text without local paths."""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any


def count(number: float) -> str:
    """Format a count; counts from one million on are abbreviated.

    >>> count(4386), count(21_734_000), count(5_600_000_000)
    ('4,386', '21.7 million', '5.6 billion')
    """
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if number >= size:
            return f"{number / size:.1f} {name}"
    return f"{number:,.0f}"


def number_of(number: float, thing: str) -> str:
    """Format a count with its noun.

    >>> number_of(1, "layer"), number_of(12, "layer")
    ('1 layer', '12 layers')
    """
    return f"{count(number)} {thing}{'' if number == 1 else 's'}"


def shortened(text: str, limit: int = 420) -> str:
    """Shorten a text to at most `limit` characters, cut at a space.

    >>> shortened("one two three", 9)
    'one two …'
    """
    return text if len(text) <= limit else text[: limit - 1].rsplit(" ", 1)[0] + " …"


def three_digits(number: float) -> str:
    """Format a number with three digits, in thousands, millions, billions or trillions, for narrow
    tables.

    >>> three_digits(110_106_428), three_digits(42.6e9), three_digits(950)
    ('110 M', '42.6 B', '950')
    """
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:
            return f"{number / size:#.3g}".rstrip(".") + f" {unit}"
    return f"{number:.3g}"


def percent(share: float) -> str:
    """Format a fraction as a percentage, such as `33.4 %`."""
    return f"{100 * share:.1f} %"


def with_spread(mean: float, std: float | None, *, digits: int = 3) -> str:
    """Format a score, with its standard deviation over seeds if it has one: `0.420 ± 0.010`."""
    return f"{mean:.{digits}f}" if std is None else f"{mean:.{digits}f} ± {std:.{digits}f}"


def signed(value: float, *, digits: int = 3) -> str:
    """Format a difference with its sign; the minus is the typographic one: `−0.100`."""
    return f"{value:+.{digits}f}".replace("-", "\u2212")


def duration(seconds: float) -> str:
    """Format a duration that was measured, to the second.

    >>> [duration(seconds) for seconds in (7.4, 130, 7500, 200000)]
    ['7 s', '2 min 10 s', '2 h 05 min', '2 d 7 h']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def rough_duration(hours: float) -> str:
    """Format a duration that was estimated, with three digits in one unit.

    >>> rough_duration(0.002), rough_duration(0.21), rough_duration(30.04), rough_duration(300)
    ('7.2 s', '13 min', '30 h', '300 h (12.5 days)')
    """
    if hours < 1 / 30:
        return f"{3600 * hours:.3g} s"
    if hours < 2:
        return f"{60 * hours:.3g} min" if hours < 1 / 6 else f"{60 * hours:.0f} min"
    days = f" ({hours / 24:.1f} days)" if hours >= 72 else ""
    return f"{hours:,.3g} h{days}" if hours < 1000 else f"{hours:,.0f} h{days}"


# Control characters (a terminal obeys those after an escape), overrides of the direction of
# writing, which turn round what follows them, and halves of UTF-16 pairs, which no file can hold.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]|\r(?!\n)")
# Characters that begin emphasis, code, links, images or formulas, and at the start of a line
# headings and lists. An underscore inside a word has no meaning.
_SPECIAL = re.compile(r"[\\`*\[\]$~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[#+-]|(?:(?<=^\d)|(?<=^\d\d))[.)]")


def printable(text: str) -> str:
    r"""Replace characters that a page, a picture or a terminal would obey, and not show, by U+FFFD.

    >>> printable("a\x1b[31mred\n"), printable("\u202eb").isprintable()
    ('a\ufffd[31mred\n', True)
    """
    return _UNPRINTABLE.sub("\ufffd", text)


def escaped(text: str) -> str:
    r"""Escape text for a paragraph, a heading or, through `markdown_table`, a table cell of Markdown.

    >>> escaped("<b>a*b</b>\n| docs_match")
    '&lt;b&gt;a\\*b&lt;/b&gt; | docs_match'
    """
    text = _SPECIAL.sub(r"\\\g<0>", " ".join(printable(text).split()))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def markdown_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table, each row on a line of its own.

    >>> print(markdown_table(["a", "b"], [[1, "x|y"]]))
    | a | b |
    | --- | --- |
    | 1 | x\\|y |
    """
    lines = [[" ".join(str(cell).splitlines()).replace("|", "\\|") for cell in row] for row in (names, *rows)]
    lines.insert(1, ["---"] * len(names))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def short_title(title: str) -> str:
    """Shorten a title: the last two parts of a path, and seven characters of a full revision hash.

    >>> short_title("/home/ada/models/minilm/"), short_title("ada/encoder@86b5e0934494bd15c9632b12f734a8a67f723594")
    ('models/minilm', 'ada/encoder@86b5e09')
    """
    if title.startswith(("/", "./", "../", "~")):
        return "/".join(PurePosixPath(title).parts[-2:])
    name, sign, revision = title.partition("@")
    return f"{name}{sign}{revision[:7]}" if len(revision) >= 32 else title


# Exported files have no local paths, which reveal names of folders. "/" alone is a separator of
# columns, not a path.
_ABSOLUTE = re.compile(r"(file:/{1,3}|~[^/\s]*/|/|[A-Za-z]:[\\/])[^/\\].*", re.DOTALL)


def without_local_paths(value: Any) -> Any:
    """Return `./NAME` for an absolute path or a path in a home folder, and any other text
    unchanged; of mappings and lists, do so for the strings inside, but not for keys.

    >>> without_local_paths(["/home/ada/models/minilm/", "google-bert/bert-base-uncased", "~/texts/*.txt", "/"])
    ['./minilm', 'google-bert/bert-base-uncased', './*.txt', '/']
    """
    if isinstance(value, str) and _ABSOLUTE.fullmatch(value):
        return f"./{PurePosixPath(value.replace(chr(92), '/')).name}"
    if isinstance(value, dict):
        return {key: without_local_paths(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_local_paths(each) for each in value]
    return value
