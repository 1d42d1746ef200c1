"""What a kind of task says of its models in their card."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bertline.foundation.files import read_object
from bertline.foundation.formats import escaped, printable, without_local_paths
from bertline.modeling.text_vectors import CLASSIFIER, VectorSettings


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


def usage_on_vectors(usage: Usage, folder: Path, *, pair: bool) -> Usage:
    """Return the usage of a linear layer on the vectors of a sentence encoder; transformers loads the encoder alone."""
    are_two = "separators" in read_object(folder / CLASSIFIER / "config.json")
    encoded = 'SentenceTransformer("NAME").encode(["One text.", "Another text."])'
    vectors = ["u, v = " + encoded, "vectors = np.concatenate([abs(u - v), u * v])[None]"]
    lines = [
        *(["import numpy as np"] if are_two else []),
        "from safetensors.numpy import load_file",
        "from sentence_transformers import SentenceTransformer",
        "",
        'head = load_file("NAME/classifier/model.safetensors")',
        *(vectors if are_two else ["vectors = " + encoded]),
        'outputs = vectors @ head["linear.weight"].T + head["linear.bias"]',
    ]
    is_told = are_two or not pair  # contrast reads a pair as one text, which sentence-transformers does not
    return replace(usage, pipeline=False, snippets=(*(["\n".join(lines)] if is_told else []), *usage.snippets[-1:]))
