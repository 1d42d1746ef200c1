"""What a kind of task says of its models: part of the card, and files that sentence-transformers loads.

The package sentence-transformers itself is not needed.

References:
    Reimers and Gurevych, Sentence-BERT (arXiv 1908.10084); the package's documentation, "Structure of Sentence
    Transformer Models".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertline.foundation.files import write_json
from bertline.foundation.formats import escaped, printable, without_local_paths
from bertline.modeling.huggingface import read_config


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

    References:
        CommonMark 0.31, section 6.1: the fence is a longer run of backticks than any inside.

    Example:
        >>> code_span("no match"), code_span("a`b"), code_span("two\nlines")
        ('`no match`', '``a`b``', '`two lines`')
    """
    text = " ".join(printable(text).split()) or " "
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    padding = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{padding}{text}{padding}{fence}"


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorSettings:
    """How a model turns texts into vectors, for the files of the sentence-transformers package."""

    pooling: Literal["mean", "cls"]
    """How token vectors are pooled."""
    similarity: Literal["cosine", "dot"]
    """Similarity function that the vectors were trained with."""
    prompts: dict[str, str]
    """Prefix of a text by its role (`query`, `document`); empty strings for no prefix."""


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


def write_sentence_transformer(folder: Path, vectors: VectorSettings, *, max_length: int) -> None:
    """Add the files that `SentenceTransformer(folder)` reads to a folder with a `BertModel` and its tokenizer.

    The vectors equal those of `bertline.load(folder).embed`: pooled, not normalized. Cosine similarity normalizes them
    itself.
    """
    modules = enumerate([("", "Transformer"), ("1_Pooling", "Pooling")])
    named = "sentence_transformers.models"
    content = [{"idx": n, "name": str(n), "path": path, "type": f"{named}.{kind}"} for n, (path, kind) in modules]
    write_json(folder / "modules.json", content)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    settings = {
        "__version__": {},
        "prompts": vectors.prompts,
        "default_prompt_name": None,
        "similarity_fn_name": vectors.similarity,
    }
    write_json(folder / "config_sentence_transformers.json", settings)
    pooling_settings = {
        "word_embedding_dimension": read_config(folder)[0].hidden_size,
        "pooling_mode_cls_token": vectors.pooling == "cls",
        "pooling_mode_mean_tokens": vectors.pooling == "mean",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
        "include_prompt": True,
    }
    write_json(folder / "1_Pooling" / "config.json", pooling_settings)
