"""Nested runs for a sweep's trials and repetitions, created from `events.jsonl`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from bertline.tracking.feeds import GrowingFile, Turn
from bertline.tracking.store import PARENT_TAG, Status, Store, refusals
from bertline.tracking.values import NOTE_TAG, flatten

TRIAL_TAG = "bertline.trial"
# Optuna's states to MLflow's: a pruned trial was stopped on purpose, so it did not fail.
_STATUS: dict[str, Status] = {"COMPLETE": "FINISHED", "PRUNED": "KILLED", "FAIL": "FAILED"}


class TrialsFeed:
    """Creates one nested run per line of `events.jsonl`, each once, even if an earlier feeder died in between."""

    def __init__(self, store: Store, parent_run_id: str, path: Path) -> None:
        self._store, self._parent = store, parent_run_id
        self._file, self._turn = GrowingFile(path), Turn(path)
        self._done: set[str] | None = None
        self._half_way: dict[str, str] = {}

    def poll(self) -> None:
        """Record new events."""
        if not self._turn.taken():
            return
        with refusals():
            for line, position in self._file.new_lines():
                self._record(json.loads(line))
                self._file.accept(position)

    def close(self) -> None:
        """Record the remaining events and release the lock."""
        self.poll()
        self._turn.give_up()

    def _record(self, event: dict[str, Any]) -> None:
        if self._done is None:
            self._ask_what_is_there()
        assert self._done is not None
        identity = f"{event['arm']}/{event['kind']}/{event['number']}"
        if identity in self._done:
            return
        started_s, ended_s = _times(event)
        run_id = self._half_way.get(identity) or self._create(identity, event, started_s)
        self._half_way[identity] = run_id
        self._store.log_params(run_id, flatten(event["params"]))
        known: dict[str, set[int]] = {}
        points = []
        for key, value, step in _points(event):
            steps = known.setdefault(key, self._store.known_steps(run_id, key))
            if step not in steps:
                points.append((key, value, ended_s, step))
                steps.add(step)
        self._store.log_points(run_id, points)
        self._store.set_status(run_id, _STATUS[event["state"]])
        self._done.add(identity)

    def _create(self, identity: str, event: dict[str, Any], started_s: float) -> str:
        tags = {
            PARENT_TAG: self._parent,
            TRIAL_TAG: identity,
            "bertline.arm": event["arm"],
            "bertline.kind": event["kind"],
            "optuna.state": event["state"],
        }
        if reason := event.get("reason"):
            tags[NOTE_TAG] = reason
        name = f"{event['arm'].replace('_', ' ')} · {event['kind'].replace('_', ' ')} {event['number']}"
        return self._store.create_run(name, tags, start_s=started_s)

    def _ask_what_is_there(self) -> None:
        self._done = set()
        for run in self._store.find_runs({PARENT_TAG: self._parent}):
            identity = run.data.tags.get(TRIAL_TAG)
            if identity is None:
                continue
            if run.info.status == "RUNNING":
                self._half_way[identity] = run.info.run_id
            else:
                self._done.add(identity)


def _times(event: dict[str, Any]) -> tuple[float, float]:
    """Return start and end in Unix seconds, from the trial's duration `time_s` and the current time."""
    now = time.time()
    return now - float(event.get("time_s") or 0.0), now


def _points(event: dict[str, Any]) -> list[tuple[str, float, int]]:
    """Return the learning curve by percent of the schedule (MLflow's steps are integers) and the final scores."""
    curve = [("dev/score_by_percent", float(score), round(100 * share)) for share, score in event.get("curve") or []]
    last = curve[-1][2] if curve else 0
    return curve + [(key, float(value), last) for key, value in (event.get("metrics") or {}).items()]
