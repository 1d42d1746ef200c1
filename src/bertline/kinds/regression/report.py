"""Report of a task of the kind `regression`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertline.evaluation.error_html import inputs_of, plain, quote


def _number(error: dict[str, Any]) -> str:
    return quote(inputs_of(error), f"is {plain(error['gold'])}, taken for {plain(error['predicted'])}")


def error_blocks(errors: Sequence[dict[str, Any]], task_folder: Path) -> list[str]:
    """Return the HTML of errors."""
    return [_number(error) for error in errors]
