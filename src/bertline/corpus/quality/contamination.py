"""Decontamination: finds text of named files, such as test sets, in the corpus.

A passage (a line of a text file, a text cell of a table) is found where 13 of its words follow each other, or all of
them if it has fewer; case and punctuation make no difference.

Reference: Brown et al., "Language Models are Few-Shot Learners", 2020, appendix C (13-grams).
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from bertline.corpus.files import TORN, Part, archive_kind, opened, without_compression
from bertline.corpus.lines import MARKUP
from bertline.corpus.quality.word_hashes import Hashes, NgramSearch, ngram_hashes, word_hashes
from bertline.foundation.engine import Counts
from bertline.foundation.errors import DataError

NGRAM = 13
MIN_WORDS = 4
"""Shorter passages, and rows of tasks, are not looked for: "yes, it is" stands in any corpus."""
_LONGEST_CELL = 10_000_000
_LINES_LOOKED_AT = 20
_FILE = "needles.npz"
_TYPES = (
    "Name text in UTF-8 with a passage on each line, under any name, or .csv, .tsv, .jsonl, .json or .parquet; all but "
    "Parquet may be compressed."
)


def passages(path: Path) -> Iterator[str]:
    """Yield every text of a file, by its ending: cells of `.csv` and `.tsv`, strings inside `.jsonl`, `.json` and
    `.parquet`, and the lines of a file with any other name, if it is text; each but Parquet also compressed.

    Raises:
        DataError: The file is missing, is not text, or damaged.
    """
    name, part = without_compression(path.name), Part(str(path), path.name, size=0)
    try:
        if name.endswith(".parquet"):
            import pyarrow.parquet as pq

            for batch in pq.ParquetFile(path).iter_batches():
                yield from _strings(batch.to_pylist())
            return
        with opened(part) as content, io.TextIOWrapper(content, encoding="utf-8-sig", newline="") as lines:
            if name.endswith((".csv", ".tsv")):
                csv.field_size_limit(_LONGEST_CELL)
                # Published TSV files have unbalanced quotes, which are characters there.
                tabs = name.endswith(".tsv")
                rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE) if tabs else csv.reader(lines)
                yield from chain.from_iterable(rows)
            elif name.endswith(".jsonl"):
                for line in lines:
                    yield from _strings(json.loads(line)) if line.strip() else ()
            elif name.endswith(".json"):
                yield from _strings(json.load(lines))
            else:
                yield from _lines_of_text(part, lines)
    except UnicodeDecodeError as error:
        raise DataError(f"corpus.decontaminate: {path} is not UTF-8 ({error}). {_TYPES}") from error
    except (*TORN, OSError, ValueError, csv.Error) as error:
        raise DataError(f"corpus.decontaminate: {path} cannot be read: {error}") from error


def _lines_of_text(part: Part, lines: Iterable[str]) -> Iterator[str]:
    """Yield lines. Of archives and markup they would be names and tags instead of passages."""
    if (kind := archive_kind(part)) is not None:
        raise DataError(f"corpus.decontaminate: {part.path} is a {kind} archive, or built like one. {_TYPES}")
    lines = iter(lines)
    start = list(islice(lines, _LINES_LOOKED_AT))
    if MARKUP.match("".join(start)):
        raise DataError(f"corpus.decontaminate: {part.path} is markup, whose tags would be taken for words. {_TYPES}")
    for number, line in enumerate(chain(start, lines), start=1):
        if "\0" in line:
            raise DataError(f"corpus.decontaminate: {part.path}:{number} has a NUL byte, and text has none. {_TYPES}")
        yield line


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
        for passage in passages(Path(path).expanduser()):
            words = word_hashes([passage])
            if len(words) >= MIN_WORDS:
                length = min(len(words), NGRAM)
                hashes_by_size.setdefault(length, []).append(ngram_hashes(words, length))
                total += 1
        if total == before:
            raise DataError(
                f"corpus.decontaminate: {path} has no passage of at least {MIN_WORDS} words, so that nothing could be "
                "found. Name another file, or leave it out."
            )
    needles = {str(size): np.unique(np.concatenate(parts)) for size, parts in sorted(hashes_by_size.items())}
    np.savez(out / _FILE, **needles)  # type: ignore[arg-type]
    return {"passages": total}


def read_needles(folder: Path) -> NgramSearch:
    """Return the search for what `write_needles` wrote."""
    with np.load(folder / _FILE, allow_pickle=False) as content:
        return NgramSearch({int(length): content[length] for length in content.files})


def contaminated(paragraphs: Sequence[Sequence[str]], needles: NgramSearch) -> list[int]:
    """Return the indices of the paragraphs that contain a passage, in order; it may cross sentences."""
    return sorted({int(number) for _, _, numbers in needles.found_in(paragraphs) for number in numbers})
