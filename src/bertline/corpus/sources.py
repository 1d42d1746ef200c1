"""Several sources at once: how they are read, and how often each of their documents is there.

The sources are read one after the other, and duplicates are looked for across all of them. Then each document is
repeated or left out, so that sources have their weights and languages the shares that were asked for. How often a
document is there is a pure function of its id, the seed and the rate of its source and language.
"""

import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from bertline.corpus.document import SourceDocument, language_of, source_of
from bertline.corpus.registry import SourcesCorpusConfig
from bertline.foundation.errors import DataError
from bertline.foundation.seeds import unit_interval

_LANGUAGE = re.compile(r"[^\W_][\w-]{0,39}")
_MOST_SHOWN = 12


def labelled(document: SourceDocument, name: str, language: str | None) -> SourceDocument:
    """Let the id of a document begin with the name of its source and its language: `wiki[de]/a.txt:3`.

    Raises:
        DataError: The language is no code.
    """
    language = language or document.language
    if language is not None and not _LANGUAGE.fullmatch(language):
        raise DataError(f"{document.id}: the language is {language!r}, expected a code such as 'de' or 'pt-BR'.")
    return dataclasses.replace(
        document,
        id=f"{name if language is None else f'{name}[{language}]'}/{document.id}",
        # Texts without a group are split by their content, so that equal ones of two sources stay
        # together.
        group=f"{name}/{document.group}" if document.group else "",
    )


def sampling_rates(counts: Mapping[str, Mapping[str, int]], config: SourcesCorpusConfig) -> dict[str, float]:
    r"""Return how often the documents of each source and language are there.

    Without `language_exponent` that is the weight of the source. With an exponent $\alpha$, languages get shares
    $p_l \propto n_l^\alpha$, where $n_l$ is the number of characters of the language, weights included; the sum over
    all languages stays the same. Of the counts by label, after de-duplication, `train/characters` are used.

    Reference: google-research/bert, multilingual.md: exponentially smoothed weighting of the data, 0.7.
    """
    weights = {label: config.sources[source_of(label)].weight for label in counts}
    if config.language_exponent is None:
        return weights
    sizes: defaultdict[str, float] = defaultdict(float)
    for label, of_label in counts.items():
        sizes[language_of(label) or label] += weights[label] * of_label.get("train/characters", 0)
    smoothed = {language: size**config.language_exponent for language, size in sizes.items()}
    scale = math.fsum(sizes.values()) / max(1.0, math.fsum(smoothed.values()))
    factor = {language: scale * smoothed[language] / size if size else 1.0 for language, size in sizes.items()}
    return {label: weight * factor[language_of(label) or label] for label, weight in weights.items()}


def num_copies(document_id: str, rate: float, seed: int) -> int:
    """Return how often a document is there: the rate, rounded up or down by a hash of the id so that its mean is kept.

    >>> num_copies("a/1", 3.0, seed=0)
    3
    >>> sum(num_copies(f"a/{number}", 0.25, seed=0) for number in range(10_000)) // 100
    25
    """
    whole = math.floor(rate)
    return whole + (unit_interval(seed, "sampling", document_id) < rate - whole)


def source_table(
    read: Mapping[str, Mapping[str, int]],
    kept: Mapping[str, Mapping[str, int]],
    config: SourcesCorpusConfig,
    dropped: Mapping[str, Mapping[str, int]],
) -> dict[str, Any]:
    """Return counts by source for the manifest.

    Returns:
        Under `parts` for each label its `language`, `rate`, number of `documents` before sampling, `counts` after it
        and `share` of the characters of train; under `dropped` counts by source and reason.
    """
    rates = sampling_rates(read, config)
    total = sum(counts.get("train/characters", 0) for counts in kept.values())
    parts = {}
    for label in sorted(read):
        counts = kept.get(label, {})
        parts[label] = {
            "language": language_of(label),
            "rate": round(rates[label], 4),
            "documents": sum(number for name, number in read[label].items() if name.endswith("/documents")),
            "counts": dict(sorted(counts.items())),
            "share": round(counts.get("train/characters", 0) / max(1, total), 6),
        }
    return {"parts": parts, "dropped": {name: by for name, by in dropped.items() if by}}


def sources_in_words(table: Mapping[str, Any]) -> str:
    """Return the shares of sources, or of their languages, in one line, with the largest first.

    >>> german = {"share": 0.75, "rate": 1.0, "documents": 4}
    >>> sources_in_words({"parts": {"a[de]": german, "b": {"share": 0.25, "rate": 2.0, "documents": 1}}})
    'a[de] 75.0 % (4 documents), b 25.0 % (1 document, read 2 times)'
    """
    parts = sorted(table["parts"].items(), key=lambda item: (-item[1]["share"], item[0]))
    sentences = []
    for label, part in parts[:_MOST_SHOWN]:
        documents = f"{part['documents']:,} document{'s' * (part['documents'] != 1)}"
        often = "" if part["rate"] == 1 else f", read {part['rate']:.3g} times"
        sentences.append(f"{label} {part['share']:.1%}".replace("%", " %") + f" ({documents}{often})")
    return ", ".join(sentences) + (f" and {len(parts) - _MOST_SHOWN:,} more" if len(parts) > _MOST_SHOWN else "")
