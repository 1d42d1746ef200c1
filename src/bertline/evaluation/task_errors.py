"""Confident errors of a model, rendered by its kind of task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from bertline.evaluation.facts import TaskFacts
from bertline.kinds.registry import kind_part

_ERRORS = 8


class ReportPart(Protocol):
    """Contract of `kinds/NAME/report.py`."""

    def error_blocks(self, errors: Sequence[dict[str, Any]], task_folder: Path) -> list[str]:
        """Return the HTML of errors.

        Args:
            errors: Rows of `TaskKind.table` without `correct`.
            task_folder: Artifact of the task's rows.
        """


def errors_section(task: TaskFacts) -> str:
    """Return the most confident errors of the best model on test."""
    errors = task.result.get("examples", {}).get("confident_errors", [])[:_ERRORS]
    if not errors:
        return ""
    report: ReportPart = kind_part(task.result["task_kind"], "report")
    return "<h3>Where it is sure and wrong</h3>" + "".join(report.error_blocks(errors, task.folder))
