"""Pages from the templates next to this, each one file, for light and dark schemes, and how they show numbers."""

from collections.abc import Sequence
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from bertline.foundation.formats import count, duration, number_of, percent, printable, shortened, signed
from bertline.foundation.verdicts import NOISE_UNKNOWN
from bertline.tasks.metrics import metric_name as metric_name


def in_unit(value: float, unit: Literal["nats", "fraction"]) -> str:
    """Format a score of pretraining.

    >>> in_unit(3.6372, "nats"), in_unit(0.8276, "fraction")
    ('3.64', '82.8 %')
    """
    return f"{value:.2f}" if unit == "nats" else percent(value)


def score(value: float, spread: float | None = None) -> str:
    """Format a score, with the standard deviation over seeds if given.

    >>> score(0.42), score(0.4213, 0.0121).split()
    ('0.420', ['0.421', '±', '0.012'])
    """
    # U+202F: narrow no-break spaces.
    number = f"{value:.3f}".replace("-", "\u2212")
    return number if spread is None else f"{number}\u202f±\u202f{spread:.3f}"


def with_diverged(finished: int, diverged: int) -> str:
    """Format the number of seeds of a score.

    >>> with_diverged(5, 0), with_diverged(4, 1)
    ('5', '4 (1 more diverged)')
    """
    return f"{finished} ({diverged} more diverged)" if diverged else str(finished)


def listing(words: Sequence[str]) -> str:
    """Join words as in a sentence.

    >>> listing(["a"]), listing(["a", "b"]), listing(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def settings_in_words(params: dict[str, object]) -> str:
    """Return hyperparameters as a phrase.

    >>> settings_in_words({"learning_rate": 0.00030000000000000003, "batch_size": 32})
    'batch size 32 and learning rate 0.0003'
    """
    shown = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in sorted(params.items())}
    return listing([f"{words(name)} {value}" for name, value in shown.items()] or ["the defaults"])


def test_score(arm: dict[str, Any]) -> str:
    """Return an arm's mean on test with its spread; a single seed has no spread."""
    return score(arm["test_mean"], arm["test_std"])


def test_name(split: str) -> str:
    """Return the name of a test split in a sentence."""
    return "test" if split == "test" else f"test ({words(split.removeprefix('test_'))})"


def words(name: str) -> str:
    """Return a name of the configuration or of an artifact as words."""
    return name.replace("_", " ")


_FILTERS = (
    count, duration, percent, signed, in_unit, listing, metric_name, number_of, score, shortened, words,
    settings_in_words, test_name, test_score, with_diverged,
)  # fmt: skip


def rendered(template: str, **facts: Any) -> str:
    """Return a page of `templates/`; all text in it is escaped, except what is marked as HTML."""
    environment = Environment(
        loader=PackageLoader("bertline.evaluation"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {one.__name__: one for one in _FILTERS}
    facts |= {"contents": [], "noise_unknown": NOISE_UNKNOWN.capitalize(), "without_empty": _without_empty}
    return printable(environment.get_template(template).render(facts))


def _without_empty(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the head and the rows of a table without the columns whose cells are all empty or a dash."""
    columns = [place for place in range(len(head)) if not rows or any(row[place] not in ("", "–") for row in rows)]
    return [[line[place] for place in columns] for line in (head, *rows)]
