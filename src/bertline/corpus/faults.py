"""What is wrong with an input file: an error that names it, or counted and said, as the configuration tells."""

from __future__ import annotations

import os
from collections import Counter
from typing import Literal

from bertline.corpus.input_files import InputFile
from bertline.corpus.left_out import leave_out
from bertline.foundation.errors import DataError
from bertline.foundation.progress import of_kind, warn

OnUndecodable = Literal["fail", "skip", "replace"]


class FileFaults:
    """Faults of one file."""

    def __init__(self, file: InputFile, policy: OnUndecodable, dropped: Counter[str]) -> None:
        self._file = file
        self._policy = policy
        self._dropped = dropped

    def count(self, reason: str, problem: str, fix: str) -> None:
        """Count a fault of the whole file.

        Raises:
            DataError: With `fail`.
        """
        if self._policy == "fail":
            raise DataError(
                f"{self._file.path}: {problem}. {fix}, or set corpus.on_undecodable=skip to keep what can be read and "
                "count the rest."
            )
        leave_out(self._dropped, reason, self._file.name, problem)
        fate = f"what cannot be read of it is left out, counted under {reason}"
        warn(f"{self._file.path}: {problem}; {fate}", extra=of_kind(reason))

    def is_changed(self, before: os.stat_result, after: os.stat_result, place: str) -> bool:
        """Return whether the file changed between two looks at it, and count that.

        Raises:
            DataError: With `fail`, if it changed.
        """
        if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
            return False
        self.count(
            "files/changed",
            f"the file changed while it was read: {before.st_size:,} bytes at first, {after.st_size:,} after {place}",
            "Read it when nothing writes to it",
        )
        return True
