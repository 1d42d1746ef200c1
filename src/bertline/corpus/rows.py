"""Documents from rows that name their columns, for the readers of tables and of Hugging Face datasets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

from bertline.corpus.document import SourceDocument
from bertline.corpus.input_files import paragraphs_of
from bertline.foundation.errors import DataError

SHOWN_COLUMNS = 20
"""Maximum number of column names in a message."""


class Columns(Protocol):
    """Settings that name the columns of a row."""

    @property
    def text_column(self) -> str:
        """Column of the text."""

    @property
    def group_column(self) -> str | None:
        """Column whose values group rows."""


def document_of_row(
    row: Mapping[str, Any], key: str, where: str, config: Columns, dropped: Counter[str]
) -> SourceDocument | None:
    """Convert a row to a document; `key` becomes its id (the same on every machine), `where` is for messages."""
    for role, column in (("text_column", config.text_column), ("group_column", config.group_column)):
        if column is not None and column not in row:
            names = ", ".join(list(row)[:SHOWN_COLUMNS]) or "none"
            raise DataError(f"{where}: no column {column!r} (corpus.{role}). Columns here: {names}.")
    text = row[config.text_column]
    if text is None or text == "":
        dropped["documents/no_text"] += 1
        return None
    if not isinstance(text, str):
        raise DataError(
            f"{where}: column {config.text_column!r} (corpus.text_column) holds {type(text).__name__} "
            f"{str(text)[:60]!r}, expected text."
        )
    group = row[config.group_column] if config.group_column is not None else None
    return SourceDocument(
        key, "" if group is None else f"{config.group_column}={group}", tuple(paragraphs_of(text.splitlines()))
    )


def datasets_library() -> Any:
    """Import the datasets library, with progress bars off; on demand, because the import takes over a second."""
    import datasets

    datasets.disable_progress_bars()
    return datasets
