"""Feeds that send the contents of run files to MLflow, each value once."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from bertline.tracking.store import Store, refusals

_ROWS_A_ROUND = 500


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
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                handle.close()
                return False
            self._handle = handle
        return True

    def give_up(self) -> None:
        """Release the lock for another process."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None


class MetricsFeed:
    """Sends `metrics.jsonl` to one run.

    The steps that a run already has are queried from MLflow, so that nothing is sent twice, even after a feeder died
    between sending and marking rows as sent.
    """

    def __init__(self, store: Store, run_id: str, path: Path) -> None:
        self._store, self._run_id = store, run_id
        self._file, self._turn = GrowingFile(path), Turn(path)
        self._sent: dict[str, set[int]] = {}
        self._first_keys: set[str] | None = None

    def poll(self) -> None:
        """Send new rows."""
        if not self._turn.taken():
            return
        with refusals():
            rows: list[tuple[dict[str, Any], int]] = []
            for line, position in self._file.new_lines():
                rows.append((json.loads(line), position))
                if len(rows) == _ROWS_A_ROUND:
                    self._send(rows)
                    rows = []
            self._send(rows)

    def close(self) -> None:
        """Send the remaining rows and release the lock."""
        self.poll()
        self._turn.give_up()

    def _send(self, rows: list[tuple[dict[str, Any], int]]) -> None:
        if not rows:
            return
        points, fresh = [], set()
        for row, _ in rows:
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
        self._file.accept(rows[-1][1])

    def _steps_of(self, key: str) -> set[int]:
        if self._first_keys is None:
            self._first_keys = set(self._store.get_run(self._run_id).data.metrics)
        if key not in self._sent:
            self._sent[key] = self._store.known_steps(self._run_id, key) if key in self._first_keys else set()
        return self._sent[key]


class ArtifactFeed:
    """Attaches a file to one run, and replaces it whenever the file is rewritten."""

    def __init__(self, store: Store, run_id: str, path: Path) -> None:
        self._store, self._run_id, self._path = store, run_id, path
        self._attached: tuple[int, int] | None = None

    def poll(self) -> None:
        """Attach the file if it is new or has changed."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return
        version = (status.st_ino, status.st_mtime_ns)
        if version != self._attached:
            with refusals():
                self._store.client.log_artifact(self._run_id, str(self._path))
            self._attached = version

    def close(self) -> None:
        """Attach the last version of the file."""
        self.poll()
