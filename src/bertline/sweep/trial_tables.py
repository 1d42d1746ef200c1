"""trials.csv: every trial of every arm."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from optuna.trial import FrozenTrial

from bertline.foundation.files import write_atomically
from bertline.sweep.job import Arm
from bertline.sweep.study import curve_of, last_dev


def write_trials_csv(path: Path, trials: Mapping[Arm, Sequence[FrozenTrial]]) -> None:
    """Write one row per trial: arm, number, state, dev score, completed fraction of the schedule, seconds, point."""
    names = sorted({name for of_arm in trials.values() for trial in of_arm for name in trial.params})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["arm", "number", "state", "dev", "share", "time_s", *names])
    for arm, of_arm in trials.items():
        for trial in of_arm:
            curve = curve_of(trial)
            seconds = f"{trial.duration.total_seconds():.1f}" if trial.duration is not None else ""
            share = f"{curve[-1][0]:.4g}" if curve else ""
            dev = last_dev(trial)
            point = [trial.params.get(name, "") for name in names]
            writer.writerow([arm, trial.number, trial.state.name, "" if dev is None else dev, share, seconds, *point])
    write_atomically(path, text.getvalue())
