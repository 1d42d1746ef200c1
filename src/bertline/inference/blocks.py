"""Blocks of input rows, with a digest of all rows so far."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from bertline.tasks.table_files import Record

# Maximum size of a block: enough rows to sort by length, few enough to distribute over threads and write early.
_ROWS_TOGETHER = 512
_CHARACTERS_TOGETHER = 200_000


@dataclass(slots=True)
class Block:
    """Rows that are predicted and written together."""

    records: list[Record] = field(default_factory=list)
    digest: str = ""
    """Digest of all rows of the input up to the last one of the block."""


class RowsDigest:
    """A running digest of rows."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, record: Record) -> None:
        """Add the values of one row."""
        self._digest.update(json.dumps([*record.values.items()], default=str).encode())

    def hexdigest(self) -> str:
        """Digest of all rows so far, in hexadecimal."""
        return self._digest.hexdigest()


def blocks_of(records: Iterator[Record], digest: RowsDigest) -> Iterator[Block]:
    """Group records into blocks that depend on the input alone, and add each record to the digest."""
    block, characters = Block(), 0
    for record in records:
        digest.add(record)
        block.records.append(record)
        characters += sum(len(value) for value in record.values.values() if isinstance(value, str | list))
        if len(block.records) == _ROWS_TOGETHER or characters >= _CHARACTERS_TOGETHER:
            block.digest = digest.hexdigest()
            yield block
            block, characters = Block(), 0
    if block.records:
        block.digest = digest.hexdigest()
        yield block
