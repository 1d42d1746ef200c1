"""Escaping of the user's names for Markdown, so that they are displayed literally."""

from __future__ import annotations

import re

# Characters that begin emphasis, code, links or images. An underscore inside a word has no meaning.
_SPECIAL = re.compile(r"[\\`*\[\]]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


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
    r"""Escape text for a paragraph, a heading or, through `card_tables.table`, a table cell.

    Example:
        >>> escaped("<b>a*b</b>\n| docs_match")
        '&lt;b&gt;a\\*b&lt;/b&gt; | docs_match'
    """
    text = _SPECIAL.sub(r"\\\g<0>", " ".join(text.split()))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
