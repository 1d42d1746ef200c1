"""Names that a user chose, in Markdown: they are shown as they are, whatever characters they have."""

from __future__ import annotations

import re

# Characters that begin emphasis, code, links, images, HTML or an entity. Inside a word an underscore means nothing.
_SPECIAL = re.compile(r"[\\`*\[\]]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def code_span(text: str) -> str:
    r"""Text as inline code. Runs of white space, line breaks included, become one space.

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
    r"""Text escaped for a paragraph, a heading or, through `card_tables.table`, a cell.

    Example:
        >>> escaped("<b>a*b</b>\n| docs_match")
        '&lt;b&gt;a\\*b&lt;/b&gt; | docs_match'
    """
    text = _SPECIAL.sub(r"\\\g<0>", " ".join(text.split()))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
