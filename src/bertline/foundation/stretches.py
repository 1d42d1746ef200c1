"""The distinct stretches of text between two spaces, found several times as fast as with a dictionary of Python."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def distinct_stretches(text: str) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Return [stretches] the number of each stretch between two spaces of a text, and the distinct stretches.

    Example:
        >>> numbers, stretches = distinct_stretches("to be or not to be")
        >>> numbers.tolist(), stretches
        ([0, 1, 2, 3, 0, 1], ['to', 'be', 'or', 'not'])
    """
    content = text.encode()
    offsets = np.array([0, len(content)], dtype=np.int64)
    whole = pa.LargeStringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(content))
    found = pc.split_pattern(whole, pattern=" ").values.dictionary_encode()
    return found.indices.to_numpy(), found.dictionary.to_pylist()
