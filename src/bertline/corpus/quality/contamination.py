"""Decontamination: finds text of named files, such as test sets, in the corpus.

A passage (a line of a text file, a text cell of a table) is found where 13 of its words follow each other, or all of
them if it has fewer; case and punctuation make no difference.

Reference: Brown et al., "Language Models are Few-Shot Learners", 2020, appendix C (13-grams).
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from bertline.corpus.document import Dropped
from bertline.corpus.files import Part, naming
from bertline.corpus.lines import MARKUP, Line, read_lines
from bertline.corpus.quality.word_hashes import Hashes, NgramSearch, ngram_hashes, word_hashes
from bertline.corpus.tables import TableLayout, format_by_name, rows_of_table
from bertline.foundation.engine import Counts
from bertline.foundation.errors import DataError

NGRAM = 13
MIN_WORDS = 4
"""Shorter passages, and rows of tasks, are not looked for: "yes, it is" stands in any corpus."""
_LINES_LOOKED_AT = 20
_FILE = "needles.npz"
_TYPES = (
    "Name text in UTF-8 with a passage on each line, under any name, or .csv, .tsv, .jsonl, .json, .xlsx or .parquet; "
    "all but the last two may be compressed."
)


def passages(path: Path) -> Iterator[str]:
    """Yield every text of a file, by its ending: cells of a table, strings inside JSON, and the lines of a file with
    any other name, if it is text.

    Raises:
        DataError: The file is missing, is not text, or damaged.
    """
    part, kind = Part(str(path), path.name, size=0), format_by_name(path.name)
    rows: Iterable[tuple[int, Any] | Dropped]
    if kind is None:
        rows = _lines_of_text(part)
    elif kind == "json":
        rows = _whole_json(part)
    else:
        # Published TSV files have unbalanced quotes, which are characters there.
        layout = TableLayout(kind, header=False, quoting=kind != "tsv", encoding="utf-8", extra_fields="ignore")
        rows = rows_of_table(part, layout, "fail")
    with naming(str(path)):
        for row in rows:
            if not isinstance(row, Dropped):
                yield from _strings(row[1])
            elif row.fault is not None:
                raise DataError(f"corpus.decontaminate: {row.fault[0]} {_TYPES}")


def _whole_json(part: Part) -> Iterator[tuple[int, Any] | Dropped]:
    """Yield what a JSON file holds as one value: a passage may be any text in it, not only one of its rows."""
    lines = list(read_lines(part, "utf-8", "fail", newline="\n"))
    yield from (line for line in lines if isinstance(line, Dropped))
    try:
        yield 1, json.loads("".join(line.text for line in lines if isinstance(line, Line)))
    except (ValueError, RecursionError) as error:
        raise DataError(f"corpus.decontaminate: {part.path} is not JSON ({error}). {_TYPES}") from error


def _lines_of_text(part: Part) -> Iterator[tuple[int, str] | Dropped]:
    """Yield lines. Of markup they would be names and tags instead of passages."""
    lines = read_lines(part, "utf-8", "fail")
    start = list(islice(lines, _LINES_LOOKED_AT))
    if MARKUP.match("\n".join(line.text for line in start)):
        raise DataError(f"corpus.decontaminate: {part.path} is markup, whose tags would be taken for words. {_TYPES}")
    for line in chain(start, lines):
        yield line if isinstance(line, Dropped) else (line.number, line.text)


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
