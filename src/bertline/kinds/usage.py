"""What a kind of task says of its models in their card."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bertline.foundation.formats import printable

if TYPE_CHECKING:
    from bertline.modeling.text_vectors import VectorSettings


def code_span(text: str) -> str:
    r"""Return text as inline code. Runs of white space, including line breaks, become one space.

    Reference: CommonMark 0.31, section 6.1: the fence is a longer run of backticks than any inside.

    >>> code_span("no match"), code_span("a`b"), code_span("two\nlines")
    ('`no match`', '``a`b``', '`two lines`')
    """
    text = " ".join(printable(text).split()) or " "
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    padding = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{padding}{text}{padding}{fence}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """The part of a card that depends on the kind of task; see `TaskKind.usage`."""

    what: str
    """One sentence on inputs and outputs."""
    tag: str
    """Task tag of the hub, also used as `pipeline_tag` of the card if `pipeline` is true."""
    pipeline: bool
    """Whether a library of the hub (transformers, sentence-transformers) runs this task with the unmodified folder."""
    snippets: tuple[str, ...]
    """Python examples, with `NAME` in place of the folder."""
    limits: tuple[str, ...]
    """Limits that users should know."""
    vectors: VectorSettings | None = None
    """Settings of a model that embeds texts."""
