"""metrics.jsonl: the primary record of every metric; MLflow and the report are filled from it.

One JSON object per line: `{"step": 120, "time_s": 1760000000.0, "metrics": {"train/mlm_loss":
5.1}}`.
"""

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bertline.foundation.files import append_lines, complete_lines, keep_json_lines


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricsRow:
    """The metrics of one step. `step` counts optimizer steps; `time_s` is Unix time in seconds."""

    step: int
    time_s: float
    metrics: dict[str, float]


class MetricsLog:
    """Append-only metrics file: one line per call, written at once, so a killed process loses at
    most one line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one row.

        Raises:
            MachineError: The disk is full or the folder cannot be written; earlier rows are kept.
        """
        plain = {key: float(value) for key, value in metrics.items()}
        row = MetricsRow(step=step, time_s=time.time(), metrics=plain)
        append_lines(self.path, [json.dumps(dataclasses.asdict(row))])

    def keep_up_to(self, step: int) -> None:
        """Drop rows after `step`, because a run resumed from a checkpoint writes them again."""
        keep_json_lines(self.path, lambda row: row["step"] <= step)


def read_metrics(path: Path) -> Iterator[MetricsRow]:
    """Yield rows in file order, without an incomplete last line (of a killed writer)."""
    return (MetricsRow(**json.loads(line)) for line, _ in complete_lines(path))
