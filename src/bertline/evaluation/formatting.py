"""Formatting of numbers and text for the report."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Literal

from bertline.foundation.formats import count, percent
from bertline.tasks.metrics.names import metric_name as metric_name

_FEW = 6
"""Number of names that `counted` lists."""


def signed(value: float) -> str:
    """Format a difference with its sign.

    Example:
        >>> signed(0.0213), signed(-0.1)
        ('+0.021', '−0.100')
    """
    return f"{value:+.3f}".replace("-", "\u2212")


def escape(text: object) -> str:
    """Escape any text for HTML; the user's corpus may contain anything.

    Example:
        >>> escape("<script>")
        '&lt;script&gt;'
    """
    return html.escape(str(text), quote=True)


def in_unit(value: float, unit: Literal["nats", "fraction"]) -> str:
    """Format a score of pretraining.

    Example:
        >>> in_unit(3.6372, "nats"), in_unit(0.8276, "fraction")
        ('3.64', '82.8 %')
    """
    return f"{value:.2f}" if unit == "nats" else percent(value)


def score(value: float, spread: float | None = None) -> str:
    """Format a score, with the standard deviation over seeds if given.

    Example:
        >>> score(0.42), score(0.4213, 0.0121).split()
        ('0.420', ['0.421', '±', '0.012'])
    """
    # U+202F: narrow no-break spaces.
    number = f"{value:.3f}".replace("-", "\u2212")
    return number if spread is None else f"{number}\u202f±\u202f{spread:.3f}"


def number_of(number: float, thing: str) -> str:
    """Format a count with its noun.

    Example:
        >>> number_of(1, "layer"), number_of(12, "layer")
        ('1 layer', '12 layers')
    """
    return f"{count(number)} {thing}{'' if number == 1 else 's'}"


def counted(names: Sequence[str], thing: str) -> str:
    """Format how many names there are, and the first few of them.

    Example:
        >>> counted(["numpy", "torch"], "label"), counted(list("abcdefgh"), "tag")
        ('2 labels (numpy, torch)', '8 tags (a, b, c, d, e, f, …)')
    """
    few = ", ".join([*names[:_FEW], "…"] if len(names) > _FEW else names)
    return f"{number_of(len(names), thing)} ({few})" if names else f"{thing}s"


def with_diverged(finished: int, diverged: int) -> str:
    """Format the number of seeds of a score.

    Example:
        >>> with_diverged(5, 0), with_diverged(4, 1)
        ('5', '4 (1 more diverged)')
    """
    return f"{finished} ({diverged} more diverged)" if diverged else str(finished)


def setting(value: object) -> str:
    """Format the value of a hyperparameter.

    Example:
        >>> setting(0.00030000000000000003), setting(32), setting("gelu")
        ('0.0003', '32', 'gelu')
    """
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def listing(words: Sequence[str]) -> str:
    """Join words as in a sentence.

    Example:
        >>> listing(["a"]), listing(["a", "b"]), listing(["a", "b", "c"])
        ('a', 'a and b', 'a, b and c')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def shortened(text: str, limit: int) -> str:
    """Shorten a text to at most `limit` characters, cut at a space.

    Example:
        >>> shortened("one two three", 9)
        'one two …'
    """
    return text if len(text) <= limit else text[: limit - 1].rsplit(" ", 1)[0] + " …"
