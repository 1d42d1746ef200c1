"""What a kind of task says of its models in their card."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bertline.foundation.formats import escaped, printable, without_local_paths
from bertline.modeling.text_vectors import VectorSettings


def shown(title: str) -> str:
    """Escape the title of an arm or a baseline, and shorten it if it is a local path.

    >>> shown("/home/ada/models/minilm")
    './minilm'
    """
    return escaped(without_local_paths(title))


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


def usage_on_vectors(usage: Usage, *, pair: bool) -> Usage:
    """Return the usage of a classifier on the vectors of a sentence encoder; transformers loads the encoder alone."""
    by_vectors = (
        "from safetensors.numpy import load_file\nfrom sentence_transformers import SentenceTransformer\n\n"
        'head = load_file("NAME/classifier/model.safetensors")\n'
        'vectors = SentenceTransformer("NAME").encode(["One text.", "Another text."])\n'
        'logits = vectors @ head["linear.weight"].T + head["linear.bias"]'
    )
    return replace(usage, pipeline=False, snippets=(*([] if pair else [by_vectors]), *usage.snippets[-1:]))
