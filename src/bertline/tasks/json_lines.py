"""Parsing of JSON lines: one object per line, without lone surrogates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from bertline.tasks.bad_rows import BadRow


def json_object(content: str) -> dict[str, Any]:
    """Parse a line as a JSON object.

    Raises:
        BadRow: Reason `not_json` or `half_character`. The caller adds file and line to the message.

    Example:
        >>> json_object('{"text": "one"}')
        {'text': 'one'}
    """
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadRow("not_json", f"it is not JSON ({error}); each line must be one JSON object") from error
    if not isinstance(value, dict):
        raise BadRow("not_json", f"it is a JSON {type(value).__name__}; each line must be one JSON object")
    require_whole_characters(value)
    return value


def require_whole_characters(value: Any) -> None:
    r"""Check that no string has a lone surrogate (`"\ud800"`), which no encoding can store and no tokenizer can read.

    Args:
        value: Any parsed JSON value; keys are checked too.

    Raises:
        BadRow: Reason `half_character`. The caller adds the place to the message.
    """
    for text in _texts(value):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadRow(
                "half_character", f"it has {text[error.start]!r}, which is half of a character (a lone surrogate)"
            ) from error


def _texts(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            waiting += [*each, *each.values()]
        elif isinstance(each, list | tuple):
            waiting += each
