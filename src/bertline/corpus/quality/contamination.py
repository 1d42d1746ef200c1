"""Decontamination: finds text of named files, such as test sets, in the corpus.

A passage (a line of a text file, a text cell of a table) is found where 13 of its words follow each other, or all of
them if it has fewer; case and punctuation make no difference.

Reference: Brown et al., "Language Models are Few-Shot Learners", 2020, appendix C (13-grams).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertline.corpus.lines import numbered_lines
from bertline.corpus.quality.word_hashes import Hashes, find_ngrams, ngram_hashes, word_hashes
from bertline.corpus.tables import TableLayout, format_by_name, read_records
from bertline.foundation.engine import Counts
from bertline.foundation.errors import DataError

NGRAM = 13
MIN_WORDS = 4
"""Shorter passages, and rows of tasks, are not looked for: "yes, it is" stands in any corpus."""
_FILE = "needles.npz"


def passages(path: Path) -> Iterator[str]:
    """Yield every text of a file, by its ending: cells of a table, strings inside JSON, and the lines of a file with
    any other name.

    Raises:
        DataError: The file is missing, is not text, or damaged.
    """
    kind = format_by_name(path.name)
    if kind is None:
        yield from (line for _, line in numbered_lines(path))
    elif kind == "json":  # a passage may be any text in it, not only one of its rows
        content = "\n".join(line for _, line in numbered_lines(path))
        try:
            yield from _strings(json.loads(content))
        except ValueError as error:
            raise DataError(f"{path} is not JSON ({error}).") from error
    else:
        # Published TSV files have unbalanced quotes, which are characters there.
        layout = TableLayout(kind, header=False, quoting=kind != "tsv", encoding="utf-8", extra_fields="ignore")
        for row in read_records(path, layout):
            yield from _strings(row.values)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def write_needles(paths: Sequence[str], out: Path) -> Counts:
    """Write the n-grams of the passages of at least `MIN_WORDS` words; the task of all files.

    Raises:
        DataError: A file cannot be read, or has no passage that is long enough.
    """
    hashes_by_size: dict[int, list[Hashes]] = {}
    total = 0
    for path in paths:
        before = total
        try:
            for passage in passages(Path(path).expanduser()):
                words = word_hashes([passage])
                if len(words) >= MIN_WORDS:
                    length = min(len(words), NGRAM)
                    hashes_by_size.setdefault(length, []).append(ngram_hashes(words, length))
                    total += 1
            if total == before:
                raise DataError(f"{path} has no passage of at least {MIN_WORDS} words. Leave it out.")
        except DataError as error:
            raise DataError(f"corpus.decontaminate: {error}") from error
    needles = {str(size): np.unique(np.concatenate(parts)) for size, parts in sorted(hashes_by_size.items())}
    np.savez(out / _FILE, **needles)  # type: ignore[arg-type]
    return {"passages": total}


def read_needles(folder: Path) -> dict[int, Hashes]:
    """Return the n-grams that `write_needles` wrote, sorted, by their number of words."""
    with np.load(folder / _FILE, allow_pickle=False) as content:
        return {int(length): content[length] for length in content.files}


def contaminated(paragraphs: Sequence[Sequence[str]], needles: Mapping[int, Hashes]) -> list[int]:
    """Return the indices of the paragraphs that contain a passage, in order; it may cross sentences."""
    return sorted({int(number) for _, _, numbers in find_ngrams(needles, paragraphs) for number in numbers})
