"""Stretches of text between two spaces: the distinct ones of a text, and text that has nothing but single spaces."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def distinct_stretches(text: str, *, errors: str = "strict") -> tuple[npt.NDArray[np.int32], list[str]]:
    """Return [stretches] the number of each stretch between two spaces of a text, and the distinct stretches.

    This is several times as fast as with a dictionary of Python.

    Example:
        >>> numbers, stretches = distinct_stretches("to be or not to be")
        >>> numbers.tolist(), stretches
        ([0, 1, 2, 3, 0, 1], ['to', 'be', 'or', 'not'])
    """
    import pyarrow as pa  # only here: a bare GPU image, which has no pyarrow, reads examples that were made elsewhere
    import pyarrow.compute as pc

    content = text.encode(errors=errors)
    offsets = np.array([0, len(content)], dtype=np.int64)
    whole = pa.LargeStringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(content))
    words = pc.split_pattern(whole, pattern=" ").values.dictionary_encode()
    return words.indices.to_numpy(), words.dictionary.to_pylist()


def has_single_spaces(text: str) -> bool:
    """Return whether a text is printable, with no white space but single spaces between its stretches."""
    # White space other than the space is not printable.
    return "  " not in text and text[:1] != " " and text[-1:] != " " and text.isprintable()


def with_single_spaces(text: str) -> str:
    r"""Return a text with single spaces for all white space between its stretches, and none around it.

    Example:
        >>> with_single_spaces(" to be\n or\u00a0not")
        'to be or not'
    """
    # To see that nothing is to do is faster than to do it.
    return text if has_single_spaces(text) else " ".join(text.split())
