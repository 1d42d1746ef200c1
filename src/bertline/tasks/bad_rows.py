"""What is done with rows that cannot be used: the stage ends and names the first one, or they are counted."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from bertline.foundation.errors import DataError


class BadRow(Exception):  # noqa: N818  (it is a row first, and an error only where rows must be whole)
    """A row that cannot be used, on its way to where it is counted or becomes an error.

    Args:
        reason: A few words joined by underscores, under which the row is counted.
        message: For people: file and line, what was found, how to mend it.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class BadRows:
    """Takes the bad rows of a source.

    Args:
        on_bad_row: `error` raises at the first bad row; `skip` counts.
        option: The key that decides this, for messages; None where there is none.

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
        """Rows left out, by reason."""

    def found(self, bad: BadRow) -> None:
        """Count a row, or end the stage.

        Raises:
            DataError: With the row's message and the way to leave such rows out.
        """
        if self._on_bad_row == "error":
            way_out = f" ({self._option}: skip leaves such rows out and counts them.)" if self._option else ""
            raise DataError(f"{bad}{way_out}") from bad
        self.dropped[bad.reason] += 1
