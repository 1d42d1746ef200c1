"""Markdown of a model card: escaped names and formats of cells."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bertline.foundation.local_paths import without_local_path

# Characters that begin emphasis, code, links or images. An underscore inside a word has no meaning.
_SPECIAL = re.compile(r"[\\`*\[\]]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def shown(title: str) -> str:
    """Escape the title of an arm or a baseline, and shorten it if it is a local path.

    >>> shown("/home/ada/models/minilm")
    './minilm'
    """
    return escaped(without_local_path(title))


def interval(bounds: Sequence[float] | None) -> str:
    """Format the bounds of an interval; empty without bounds.

    >>> interval([0.8123, 0.9])
    '0.812 to 0.900'
    >>> interval([-0.2, 0.1])
    '−0.200 to 0.100'
    """
    return f"{bounds[0]:.3f} to {bounds[1]:.3f}".replace("-", "\u2212") if bounds else ""


def code_span(text: str) -> str:
    r"""Return text as inline code. Runs of white space, including line breaks, become one space.

    References:
        CommonMark 0.31, section 6.1: the fence is a longer run of backticks than any inside.

    Example:
        >>> code_span("no match"), code_span("a`b"), code_span("two\nlines")
        ('`no match`', '``a`b``', '`two lines`')
    """
    text = " ".join(text.split()) or " "
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    padding = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{padding}{text}{padding}{fence}"


def escaped(text: str) -> str:
    r"""Escape text for a paragraph, a heading or, through `table`, a table cell.

    Example:
        >>> escaped("<b>a*b</b>\n| docs_match")
        '&lt;b&gt;a\\*b&lt;/b&gt; | docs_match'
    """
    text = _SPECIAL.sub(r"\\\g<0>", " ".join(text.split()))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
