"""Numbers and sentences as a person reads them."""

from __future__ import annotations

import html
from collections.abc import Sequence

_METRICS = {
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "f1": "F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "entity_f1": "entity F1",
    "entity_precision": "entity precision",
    "entity_recall": "entity recall",
    "exact_match": "exact match",
    "map": "MAP",
    "mrr": "MRR",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "top1_accuracy": "top-1 accuracy",
    "topk_accuracy": "top-k accuracy",
    "negative_log_perplexity": "negative log perplexity",
}
_CUT_METRICS = {"ndcg": "nDCG", "mrr": "MRR", "recall": "recall", "precision": "precision", "map": "MAP"}


def metric_name(key: str) -> str:
    """A score's name as people write it.

    Example:
        >>> metric_name("macro_f1"), metric_name("ndcg@10"), metric_name("recall@100"), metric_name("accuracy")
        ('macro F1', 'nDCG@10', 'recall@100', 'accuracy')
    """
    name, sign, depth = key.partition("@")
    if sign:
        return f"{_CUT_METRICS.get(name, name)}@{depth}"
    return _METRICS.get(key, key.replace("_", " "))


def by_chance(p_value: float) -> str:
    """A p-value in words.

    Example:
        >>> by_chance(0.0004), by_chance(0.02), by_chance(0.4)
        ('less than once in 1,000 times', 'once in 50 times', '40 times in 100')
    """
    if p_value < 0.001:
        return "less than once in 1,000 times"
    if p_value <= 0.1:
        return f"once in {round(1 / p_value):,} times"
    return f"{round(100 * p_value)} times in 100"


def signed(value: float) -> str:
    """A difference.

    Example:
        >>> signed(0.0213), signed(-0.1)
        ('+0.021', '−0.100')
    """
    return f"{value:+.3f}".replace("-", "\u2212")


def escape(text: object) -> str:
    """Any text, safe inside HTML: the corpus is the user's and may hold anything.

    Example:
        >>> escape("<script>")
        '&lt;script&gt;'
    """
    return html.escape(str(text), quote=True)


def count(number: float) -> str:
    """A count, short from a million on.

    Example:
        >>> count(4386), count(21_734_000), count(5_600_000_000)
        ('4,386', '21.7 million', '5.6 billion')
    """
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if number >= size:
            return f"{number / size:.1f} {name}"
    return f"{number:,.0f}"


def percent(share: float) -> str:
    """A share of one.

    Example:
        >>> percent(0.3341)
        '33.4 %'
    """
    return f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    """A time.

    Example:
        >>> duration(42), duration(375), duration(9000)
        ('42 s', '6 min 15 s', '2 h 30 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def score(value: float, spread: float | None = None) -> str:
    """A score, with the standard deviation over seeds where it was repeated.

    Example:
        >>> score(0.42), score(0.4213, 0.0121).split()
        ('0.420', ['0.421', '±', '0.012'])
    """
    # Narrow spaces at which no line breaks.
    number = f"{value:.3f}".replace("-", "\u2212")
    return number if spread is None else f"{number}\u202f±\u202f{spread:.3f}"


def number_of(number: float, thing: str) -> str:
    """A count with its noun.

    Example:
        >>> number_of(1, "layer"), number_of(12, "layer")
        ('1 layer', '12 layers')
    """
    return f"{count(number)} {thing}{'' if number == 1 else 's'}"


def with_diverged(finished: int, diverged: int) -> str:
    """How many seeds a score is of.

    Example:
        >>> with_diverged(5, 0), with_diverged(4, 1)
        ('5', '4 (1 more diverged)')
    """
    return f"{finished} ({diverged} more diverged)" if diverged else str(finished)


def setting(value: object) -> str:
    """A hyperparameter's value.

    Example:
        >>> setting(0.00030000000000000003), setting(32), setting("gelu")
        ('0.0003', '32', 'gelu')
    """
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def listing(words: Sequence[str]) -> str:
    """Words joined as in a sentence.

    Example:
        >>> listing(["a"]), listing(["a", "b"]), listing(["a", "b", "c"])
        ('a', 'a and b', 'a, b and c')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def shortened(text: str, limit: int) -> str:
    """At most so many characters, cut at a space.

    Example:
        >>> shortened("one two three", 9)
        'one two …'
    """
    return text if len(text) <= limit else text[: limit - 1].rsplit(" ", 1)[0] + " …"
