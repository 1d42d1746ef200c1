"""Handling of invalid rows: the stage fails at the first one, or they are skipped and counted."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from bertline.foundation.errors import DataError


class BadRow(Exception):  # noqa: N818  (it names a row, and becomes an error only where invalid rows are errors)
    """An invalid row. `BadRows.found` counts it or turns it into an error.

    Args:
        reason: Key under which the row is counted, in snake case.
        message: Message for the user: file and line, what was found, how to fix it.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class BadRows:
    """Collects the invalid rows of a source.

    Args:
        on_bad_row: `error` raises at the first invalid row; `skip` counts it.
        option: Configuration key of `on_bad_row`, for messages; None if there is none.

    Example:
        >>> bad_rows = BadRows("skip")
        >>> bad_rows.found(BadRow("empty_text", "train.tsv:3: the text is empty"))
        >>> bad_rows.dropped
        Counter({'empty_text': 1})
    """

    def __init__(self, on_bad_row: Literal["error", "skip"], *, option: str | None = "source.on_bad_row") -> None:
        self._on_bad_row = on_bad_row
        self._option = option
        self.dropped: Counter[str] = Counter()
        """Number of dropped rows by reason."""

    def found(self, bad: BadRow) -> None:
        """Count a row, or fail the stage.

        Raises:
            DataError: `on_bad_row` is `error`. The message is the row's, with the option that skips invalid rows.
        """
        if self._on_bad_row == "error":
            way_out = f" ({self._option}: skip leaves such rows out and counts them.)" if self._option else ""
            raise DataError(f"{bad}{way_out}") from bad
        self.dropped[bad.reason] += 1
