"""What is wrong with an input file: an error that names it, or counted and said, as the configuration tells."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from bertline.corpus.input_files import InputFile
from bertline.foundation.errors import DataError
from bertline.foundation.progress import warn

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
        self._dropped[reason] += 1
        warn(f"{self._file.path}: {problem}; what cannot be read of it is left out, counted under {reason}")
