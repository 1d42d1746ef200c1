"""events.jsonl: one line per finished trial or repetition, for following a sweep.

The studies and the outcome files are the record, and this file is derived from them. A kill between the two therefore
loses nothing: the next call appends what is missing.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertline.foundation.files import write_atomically


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file among the processes of this machine; it is released if the process is killed."""
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class EventsLog:
    """Event log of one sweep.

    Args:
        path: `events.jsonl` in the run folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add_missing(self, events: Iterable[dict[str, Any]]) -> None:
        """Append the events that are not in the file yet; safe to call from several processes at once."""
        with locked(self.path.with_name(f".{self.path.name}.lock")):
            known = self._known()
            lines = [json.dumps(event) + "\n" for event in events if _key(event) not in known]
            if lines:
                with self.path.open("a", encoding="utf-8") as handle:
                    handle.write("".join(lines))

    def _known(self) -> set[tuple[Any, ...]]:
        """Return the keys of the events in the file; cut off an incomplete last line (its writer was killed)."""
        if not self.path.exists():
            return set()
        content = self.path.read_text(encoding="utf-8")
        whole = content[: content.rfind("\n") + 1]
        if whole != content:
            write_atomically(self.path, whole)
        return {_key(json.loads(line)) for line in whole.splitlines()}


def _key(event: dict[str, Any]) -> tuple[Any, ...]:
    return event["arm"], event["kind"], event["number"]
