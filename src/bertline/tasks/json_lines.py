"""JSON as files of labelled rows have it: an object a line, of whole characters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from bertline.tasks.bad_rows import BadRow


def json_object(content: str) -> dict[str, Any]:
    """The object that a line holds.

    Raises:
        BadRow: `not_json` or `half_character`; the message is for the caller to put file and line before.

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
    r"""JSON can write half of a character (`"\ud800"`): no encoding can store it, and no tokenizer read it.

    Args:
        value: Anything that JSON gives; keys count as well.

    Raises:
        BadRow: `half_character`; the message is for the caller to put the place before.
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
