"""Invalid rows of the user's data: an error that names the first of them, or dropped and counted."""

from collections import Counter
from typing import Literal

from bertline.foundation.errors import DataError

_MOST_NAMED = 10


class BadRow(Exception):  # noqa: N818  (it names a row, and becomes an error only where invalid rows are errors)
    """An invalid row, which `BadRows` counts or names in an error; the advice may be that of other rows, too."""

    def __init__(self, reason: str, message: str, advice: str = "Fix or remove the row.") -> None:
        super().__init__(message)
        self.reason, self.advice = reason, advice


class BadRows:
    """Collects the invalid rows of a source, which are an error or are counted.

    Args:
        on_bad_row: `error` makes `end` raise an error if there are any; `skip` counts them.
        option: Configuration key of `on_bad_row`, for messages; None if there is none.

    >>> bad_rows = BadRows("skip")
    >>> bad_rows.report("empty_text", "train.tsv:3: the text is empty")
    >>> bad_rows.dropped
    Counter({'empty_text': 1})
    """

    def __init__(self, on_bad_row: Literal["error", "skip"], *, option: str | None = "source.on_bad_row") -> None:
        self._on_bad_row = on_bad_row
        self._option = option
        self._errors: list[tuple[str, str]] = []
        self.num_errors = 0
        """Number of invalid rows, where they are errors."""
        self.dropped: Counter[str] = Counter()
        """Number of dropped rows by reason."""

    def report(self, reason: str, problem: str, advice: str = "") -> None:
        """Count an invalid row; `problem` begins with its place."""
        if self._on_bad_row == "skip":
            self.dropped[reason] += 1
            return
        self.num_errors += 1
        if len(self._errors) < _MOST_NAMED:
            self._errors.append((problem, advice))

    def end(self) -> None:
        """End the reading of rows.

        Raises:
            DataError: Rows are invalid and invalid rows are errors. The message has the number of them, the first ten
                with their advice, and the option that skips invalid rows.
        """
        if not self._errors:
            return
        problems = [problem for problem, _ in self._errors]
        hints = [*dict.fromkeys(advice for _, advice in self._errors if advice)]
        if self._option:
            hints.append(f"({self._option}=skip leaves such rows out and counts them.)")
        if self.num_errors == 1:
            raise DataError(" ".join([*problems, *hints]))
        first = f"; the first {_MOST_NAMED}" if self.num_errors > _MOST_NAMED else ""
        raise DataError("\n".join([f"{self.num_errors:,} rows are invalid{first}:", *problems, " ".join(hints)]))
