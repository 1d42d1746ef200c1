"""Feeds that send the contents of run files to MLflow, each value once; trials of a sweep become nested runs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from bertline.foundation.files import lock_file
from bertline.foundation.parallel import batches
from bertline.foundation.system_load import PATTERN
from bertline.tracking.store import PARENT_TAG, Store, refusals
from bertline.tracking.tracker import Status
from bertline.tracking.values import NOTE_TAG, flatten

TRIAL_TAG = "bertline.trial"
# Optuna's states to MLflow's: a pruned trial was stopped on purpose, so it did not fail.
_STATUS: dict[str, Status] = {"COMPLETE": "FINISHED", "PRUNED": "KILLED", "FAIL": "FAILED"}


class GrowingFile:
    """Reader of complete lines of a file that another process appends to, or rewrites after a resume."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity: tuple[int, int] | None = None
        self._position = 0

    def new_lines(self) -> Iterator[tuple[str, int]]:
        """Yield new lines with the position after each; call `accept` with it once the line is recorded."""
        try:
            handle = self._path.open("rb")
        except FileNotFoundError:
            return
        with handle:
            status = os.fstat(handle.fileno())
            identity = (status.st_dev, status.st_ino)
            if identity != self._identity or status.st_size < self._position:
                self._identity, self._position = identity, 0
            position = self._position
            handle.seek(position)
            for line in handle:
                if not line.endswith(b"\n"):
                    return
                position += len(line)
                yield line.decode(), position

    def accept(self, position: int) -> None:
        """Mark lines before this position as recorded; they are not yielded again unless the file is rewritten."""
        self._position = position


class Turn:
    """File lock that allows one feeder per file: a second process waits instead of sending the same rows."""

    def __init__(self, path: Path) -> None:
        self._lock_path = path.with_name(f".{path.name}.feeding")
        self._handle: TextIO | None = None

    def taken(self) -> bool:
        """Try to take the lock; return whether this process holds it."""
        if self._handle is None:
            if not self._lock_path.parent.is_dir():
                return False  # the stage has not started
            handle = self._lock_path.open("w")
            if lock_file(handle) is False:
                handle.close()
                return False
            self._handle = handle
        return True

    def give_up(self) -> None:
        """Release the lock for another process."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None


class Feed:
    """Sends what is new in a file to one run."""

    def __init__(self, store: Store, run_id: str, path: Path) -> None:
        self._store, self._run_id, self._path = store, run_id, path

    def poll(self) -> None:
        """Send what is new."""
        raise NotImplementedError

    def close(self) -> None:
        """Send the rest, and release the file for other processes."""
        self.poll()


class _RowsFeed(Feed):
    """Sends the rows of a JSON Lines file."""

    rows_a_round = 1
    """Most rows that are sent at once."""

    def __init__(self, store: Store, run_id: str, path: Path) -> None:
        super().__init__(store, run_id, path)
        self._file, self._turn = GrowingFile(path), Turn(path)

    def poll(self) -> None:
        if not self._turn.taken():
            return
        with refusals():
            for lines in batches(self._file.new_lines(), size=lambda _: 1, most=self.rows_a_round):
                self.send([json.loads(line) for line, _ in lines])
                self._file.accept(lines[-1][1])

    def close(self) -> None:
        super().close()
        self._turn.give_up()

    def send(self, rows: Sequence[dict[str, Any]]) -> None:
        """Send rows of which the run may have some already, sent by a feeder that died before it marked them."""
        raise NotImplementedError


class MetricsFeed(_RowsFeed):
    """Sends `metrics.jsonl` to one run.

    The steps that a run already has are queried from MLflow, so that nothing is sent twice, even after a feeder died
    between sending and marking rows as sent.
    """

    rows_a_round = 500

    def __init__(self, store: Store, run_id: str, path: Path) -> None:
        super().__init__(store, run_id, path)
        self._sent: dict[str, set[int]] = {}
        self._first_keys: set[str] | None = None

    def send(self, rows: Sequence[dict[str, Any]]) -> None:
        points, fresh = [], set()
        for row in rows:
            for key, value in row["metrics"].items():
                if row["step"] not in self._steps_of(key) and (key, row["step"]) not in fresh:
                    points.append((key, float(value), float(row["time_s"]), int(row["step"])))
                    fresh.add((key, row["step"]))
        try:
            self._store.log_points(self._run_id, points)
        except Exception:
            # All or part of the points may have arrived, so query the known steps again.
            self._sent, self._first_keys = {}, None
            raise
        for key, step in fresh:
            self._sent[key].add(step)

    def _steps_of(self, key: str) -> set[int]:
        if self._first_keys is None:
            self._first_keys = set(self._store.get_run(self._run_id).data.metrics)
        if key not in self._sent:
            self._sent[key] = self._store.known_steps(self._run_id, key) if key in self._first_keys else set()
        return self._sent[key]


class LoadFeed(Feed):
    """Sends the files in which the nodes of a run sample their load (`foundation.system_load`)."""

    def __init__(self, store: Store, run_id: str, path: Path) -> None:
        super().__init__(store, run_id, path)
        self._of_nodes: dict[Path, MetricsFeed] = {}

    def poll(self) -> None:
        for path in sorted(self._path.glob(PATTERN)):
            if path not in self._of_nodes:
                self._of_nodes[path] = MetricsFeed(self._store, self._run_id, path)
            self._of_nodes[path].poll()

    def close(self) -> None:
        self.poll()
        for feed in self._of_nodes.values():
            feed.close()


class ArtifactFeed(Feed):
    """Attaches a file to one run, and replaces it whenever the file is rewritten."""

    _attached: tuple[int, int] | None = None

    def poll(self) -> None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return
        version = (status.st_ino, status.st_mtime_ns)
        if version != self._attached:
            with refusals():
                self._store.client.log_artifact(self._run_id, str(self._path))
            self._attached = version


class TrialsFeed(_RowsFeed):
    """Creates one nested run per line of `events.jsonl`, each once, even if an earlier feeder died in between."""

    def __init__(self, store: Store, run_id: str, path: Path) -> None:
        super().__init__(store, run_id, path)
        self._done: set[str] | None = None
        self._half_way: dict[str, str] = {}

    def send(self, rows: Sequence[dict[str, Any]]) -> None:
        for event in rows:
            self._record(event)

    def _record(self, event: dict[str, Any]) -> None:
        if self._done is None:
            self._ask_what_is_there()
        assert self._done is not None
        identity = f"{event['arm']}/{event['kind']}/{event['number']}"
        if identity in self._done:
            return
        # The event tells how long the trial took, not when it ended.
        ended_s = time.time()
        started_s = ended_s - float(event.get("time_s") or 0.0)
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
            PARENT_TAG: self._run_id,
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
        for run in self._store.find_runs({PARENT_TAG: self._run_id}):
            identity = run.data.tags.get(TRIAL_TAG)
            if identity is None:
                continue
            if run.info.status == "RUNNING":
                self._half_way[identity] = run.info.run_id
            else:
                self._done.add(identity)


def _points(event: dict[str, Any]) -> list[tuple[str, float, int]]:
    """Return the learning curve by percent of the schedule (MLflow's steps are integers) and the final scores."""
    curve = [("dev/score_by_percent", float(score), round(100 * share)) for share, score in event.get("curve") or []]
    last = curve[-1][2] if curve else 0
    return curve + [(key, float(value), last) for key, value in (event.get("metrics") or {}).items()]
