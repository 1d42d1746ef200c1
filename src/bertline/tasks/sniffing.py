"""The format of a table, detected from its content where its name does not say."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import re
from pathlib import Path
from typing import Literal

from bertline.tasks.decoded_files import gzip_damage_named

Guess = Literal["csv", "tsv", "jsonl", "parquet", "conll"]
_MOST_LINES = 50
_MOST_BYTES = 1 << 20
_TAG = re.compile(r"[BIESUL]-\S+|O")


def guesses(path: Path, encoding: str) -> list[Guess]:
    """The formats that the first lines of a file, plain or `.gz`, can be in; one where there is no doubt.

    Parquet has its mark, JSONL an object in every line. CoNLL has blank lines between blocks, or `-DOCSTART-`, and a
    tag at the end of each line. In TSV and CSV every line has as many fields, two at least.

    Raises:
        DataError: A damaged gzip file.
    """
    with gzip_damage_named(path), gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as handle:
        content = handle.read(_MOST_BYTES)
    if content.startswith(b"PAR1"):
        return ["parquet"]
    lines = content.decode(encoding, errors="replace").removeprefix("\ufeff").splitlines()
    # The last line may be cut off.
    lines = lines[:-1] if len(content) == _MOST_BYTES else lines
    filled = [line for line in lines if line.strip()][:_MOST_LINES]
    if not filled:
        return []
    if all(_is_object(line) for line in filled):
        return ["jsonl"]
    if _is_conll(lines[:_MOST_LINES]):
        return ["conll"]
    found: list[Guess] = []
    for name, separator in (("tsv", "\t"), ("csv", ",")):
        if _is_table(filled, separator):
            found.append(name)  # type: ignore[arg-type]
    return found


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _is_table(lines: list[str], separator: str) -> bool:
    """Whether all lines have as many fields, two at least, with or without quotes."""
    by_quotes = csv.reader(lines, delimiter=separator)
    try:
        widths = {len(fields) for fields in itertools.islice(by_quotes, _MOST_LINES)}
    except csv.Error:
        widths = set()
    unquoted = {line.count(separator) + 1 for line in lines}
    return any(len(found) == 1 and found != {1} for found in (widths, unquoted))


def _is_conll(lines: list[str]) -> bool:
    words = [line.split() for line in lines if line.strip() and not line.startswith(("-DOCSTART-", "#"))]
    blocks = any(line.startswith("-DOCSTART-") or not line.strip() for line in lines)
    return blocks and bool(words) and all(len(each) > 1 and _TAG.fullmatch(each[-1]) for each in words)
