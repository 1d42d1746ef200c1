"""HTML building blocks of the sections."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bertline.evaluation.formatting import escape

_EMPTY = ("", "–")


def section(identity: str, heading: str, *blocks: str) -> str:
    """Return a section with its heading."""
    return f'<section id="{identity}"><h2>{escape(heading)}</h2>{"".join(blocks)}</section>'


def contents(sections: Sequence[str]) -> str:
    """Return links to sections made by `section`."""
    found = [re.match(r'<section id="([^"]+)"><h2>(.*?)</h2>', one) for one in sections]
    links = (f'<a href="#{one[1]}">{one[2]}</a>' for one in found if one is not None)
    return f'<nav aria-label="Contents">{"".join(links)}</nav>'


def paragraph(text: str, css: str = "") -> str:
    """Return a paragraph of plain text."""
    return f'<p class="{css}">{escape(text)}</p>' if css else f"<p>{escape(text)}</p>"


def figure(chart: str, caption: str) -> str:
    """Return a chart with its caption."""
    return f"<figure>{chart}<figcaption>{escape(caption)}</figcaption></figure>"


def side_by_side(*blocks: str) -> str:
    """Return blocks that are laid out in columns if the window is wide enough."""
    return f'<div class="columns">{"".join(block for block in blocks if block)}</div>'


def tiles(entries: Sequence[tuple[str, str, str]]) -> str:
    """Return large figures, each (value, name, note on what it compares with)."""
    items = (
        f'<div class="tile"><b>{_with_small_spread(value)}</b><span>{escape(name)}</span>'
        f"<small>{escape(note)}</small></div>"
        for value, name, note in entries
    )
    return f'<div class="tiles">{"".join(items)}</div>'


def _with_small_spread(value: str) -> str:
    number, sign, spread = value.partition("\u202f±\u202f")
    return escape(number) + (f" <i>±\u202f{escape(spread)}</i>" if sign else "")


class Strong(str):
    """Text of a cell in bold."""

    __slots__ = ()


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of plain text cells; on a narrow screen each row is a block, with the head before each cell.

    Columns whose cells are all empty or a dash are left out.
    """
    kept = [place for place in range(len(head)) if not rows or any(row[place] not in _EMPTY for row in rows)]
    header = "".join(f"<th>{escape(head[place])}</th>" for place in kept)
    body = "".join("<tr>" + "".join(_cell(row[place], head[place]) for place in kept) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(content: str, head: str) -> str:
    shown = f"<b>{escape(content)}</b>" if isinstance(content, Strong) else escape(content)
    return f'<td data-head="{escape(head)}">{shown}</td>'


def folded(summary: str, content: str) -> str:
    """Return collapsed content that opens on a click on its summary."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def shown_tokens(tokens: Sequence[str]) -> str:
    """Return WordPiece tokens as HTML; tokens that continue a word are joined to it and shaded."""
    spans = []
    for token in tokens:
        continues = token.startswith("##") and len(token) > 2
        css = "token continued" if continues else "token"
        spans.append(
            f'{"" if continues else " "}<span class="{css}">{escape(token[2:] if continues else token)}</span>'
        )
    return f'<p class="tokens">{"".join(spans).strip()}</p>'
