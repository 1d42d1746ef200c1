"""Units of work other than trials, in the database of the studies: each is done once, by whoever is free.

A unit is `open`, `claimed` by a member of the sweep that gives signs of life, or `done`. Its result is in the run
folder, which all members share; the database has only who does what. Every change compares before it sets, under a
token of its own, so a change that is repeated after an outage neither fails nor counts twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import sqlalchemy
from sqlalchemy import Connection, text

from bertline.foundation.errors import MachineError
from bertline.foundation.progress import say, warn
from bertline.sweep.bench import Bench
from bertline.sweep.members import has_died, member_name
from bertline.sweep.store import StudyStore
from bertline.sweep.workers import Work

_TABLE = """
CREATE TABLE IF NOT EXISTS bertline_units (
    sweep VARCHAR(64), name VARCHAR(255), place INTEGER NOT NULL, payload TEXT NOT NULL,
    state VARCHAR(8) NOT NULL, owner VARCHAR(255) NOT NULL, token VARCHAR(64) NOT NULL, losses INTEGER NOT NULL,
    changed_s DOUBLE PRECISION NOT NULL, message TEXT NOT NULL, PRIMARY KEY (sweep, name)
)"""
_SEEN_WITHIN_S = 60.0
"""How long another machine's file may take to be seen here (NFS caches folders), before its unit is done again."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of work that any member of a sweep can do."""

    kind: Literal["baselines", "train", "test"]
    argument: dict[str, Any]
    """Argument as JSON values."""
    result: str
    """File of the run folder that is there when the unit is done; it also names the unit."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A unit that this process has claimed."""

    unit: Unit
    token: str


@dataclass(frozen=True, slots=True)
class UnitRow:
    """State of a unit in the database."""

    name: str
    payload: str
    state: Literal["open", "claimed", "done"]
    owner: str
    token: str
    losses: int
    age_s: float
    """Seconds since the last change or sign of life."""
    message: str


class UnitTable:
    """Units of one sweep, as one member sees them.

    Args:
        store: Database of the studies.
        sweep: Identity of the run folder.
    """

    def __init__(self, store: StudyStore, sweep: str) -> None:
        self.store, self.sweep = store, sweep
        self.member = member_name()
        """Name under which this process claims units and trials."""
        # Two processes that create the table at once would fail.
        store.exclusively("tables", lambda: store.execute(lambda connection: connection.execute(text(_TABLE)).close()))

    def publish(self, units: Iterable[Unit]) -> None:
        """Offer units to all members, in this order; one that is known is left as it is."""
        rows = [
            {"name": unit.result, "place": place, "payload": json.dumps(asdict(unit))}
            for place, unit in enumerate(units)
        ]

        def insert(connection: Connection) -> None:
            for row in rows:
                self._run(
                    connection,
                    "INSERT INTO bertline_units VALUES (:sweep, :name, :place, :payload, 'open', '', '', 0, {now}, '')"
                    " ON CONFLICT DO NOTHING",
                    **row,
                )

        self.store.execute(insert)

    def rows(self) -> list[UnitRow]:
        """Return all units: first those that lost the fewest processes, then as published."""
        return self.store.execute(self._rows)

    def claim(self, names: set[str] | None, *, max_losses: int) -> Claimed | None:
        """Claim an open unit, or one whose member has died; None if there is none.

        Args:
            names: Units that may be claimed; None: all.
            max_losses: A unit that has lost more processes than this is left alone.
        """
        token = uuid4().hex

        def attempt(connection: Connection) -> Claimed | None:
            rows = self._rows(connection)
            for row in rows:
                if row.token == token:  # an earlier attempt's
                    return Claimed(Unit(**json.loads(row.payload)), token)
            for row in rows:
                if (names is not None and row.name not in names) or row.losses > max_losses or not self.is_free(row):
                    continue
                changed = self._run(
                    connection,
                    "UPDATE bertline_units SET state = 'claimed', owner = :owner, token = :token, changed_s = {now},"
                    " losses = losses + :lost WHERE sweep = :sweep AND name = :name AND state = :state"
                    " AND token = :seen",
                    owner=self.member,
                    token=token,
                    name=row.name,
                    state=row.state,
                    seen=row.token,
                    lost=int(row.state == "claimed" and not has_died(row.owner)),
                )
                if changed:
                    if row.state == "claimed":
                        warn(f"{row.name}: the process that had it is gone; it is done again")
                    return Claimed(Unit(**json.loads(row.payload)), token)
            return None

        return self.store.execute(attempt)

    def finish(self, name: str, message: str) -> None:
        """Mark a unit as done, whoever has claimed it: its result is in the run folder."""
        self._change("state = 'done', message = :message", "name = :name", name=name, message=message)

    def give_back(self, name: str, token: str) -> None:
        """Open a claimed unit again whose worker process has died."""
        change = "state = 'open', token = '', losses = losses + 1"
        self._change(change, "name = :name AND token = :token", name=name, token=token)

    def reopen(self, name: str) -> None:
        """Open a unit again whose result is not in the run folder."""
        self._change("state = 'open', token = ''", "name = :name AND state = 'done'", name=name)

    def give_back_own(self) -> None:
        """Open all units that this process has claimed: an earlier sweep in it was stopped."""
        self._change("state = 'open', token = ''", "owner = :owner AND state = 'claimed'", owner=self.member)

    def beat(self) -> None:
        """Give a sign of life for all claimed units."""
        self._change("owner = owner", "owner = :owner AND state = 'claimed'", owner=self.member)

    def is_free(self, row: UnitRow) -> bool:
        """Return whether nobody works at a unit: it is open, or its member has died."""
        if row.state != "claimed":
            return row.state == "open"
        if row.owner == self.member:
            return False
        return has_died(row.owner) or (self.store.can_tell_the_silent and row.age_s > self.store.grace_s)

    def _rows(self, connection: Connection) -> list[UnitRow]:
        found = connection.execute(
            text(
                "SELECT name, payload, state, owner, token, losses, "
                f"{self.store.now} - changed_s, message FROM bertline_units WHERE sweep = :sweep"
                " ORDER BY losses, place, name"
            ),
            {"sweep": self.sweep},
        )
        return [UnitRow(*row) for row in found]

    def _change(self, change: str, condition: str, **values: Any) -> None:
        statement = f"UPDATE bertline_units SET {change}, changed_s = {{now}} WHERE sweep = :sweep AND {condition}"
        self.store.execute(lambda connection: self._run(connection, statement, **values))

    def _run(self, connection: Connection, statement: str, **values: Any) -> int:
        result = connection.execute(text(statement.format(now=self.store.now)), {"sweep": self.sweep, **values})
        assert isinstance(result, sqlalchemy.CursorResult)
        return result.rowcount


class SharedUnits:
    """A `Source` of units that are offered to all members of the sweep; finished when all results are there.

    Args:
        table: Units of the sweep.
        units: The units, in the order in which they are to be done; those whose result is there are left out.
        run: Module-level function that does a `Unit` and returns the progress message.
        run_folder: Run folder with the results.
        task_name: Task, for messages.
        max_losses: Number of lost processes of a unit after which the sweep fails.
    """

    def __init__(
        self,
        table: UnitTable,
        units: Sequence[Unit],
        *,
        run: Callable[[Bench, Unit], str],
        run_folder: Path,
        task_name: str,
        max_losses: int,
    ) -> None:
        self._table, self._run, self._folder = table, run, run_folder
        self._task_name, self._max_losses = task_name, max_losses
        self._open = {unit.result for unit in units if not (run_folder / unit.result).exists()}
        self._claims: dict[str, str] = {}
        table.publish(unit for unit in units if unit.result in self._open)

    def take(self) -> Work | None:
        """See `Source`."""
        self._look_at_the_others()
        if not self._open - self._claims.keys():
            return None
        claimed = self._table.claim(self._open - self._claims.keys(), max_losses=self._max_losses)
        if claimed is None:
            return None
        self._claims[claimed.unit.result] = claimed.token
        return Work(self._run, claimed.unit)

    def is_finished(self) -> bool:
        """See `Source`.

        Raises:
            MachineError: A unit has lost too many processes.
        """
        self._look_at_the_others()
        return not self._open

    def done(self, work: Work, result: str) -> None:
        """See `Source`."""
        name = work.argument.result
        self._table.finish(name, result)
        del self._claims[name]
        self._open.discard(name)
        say(f"{self._task_name}, {result}")

    def lost(self, work: Work) -> None:
        """See `Source`."""
        name = work.argument.result
        self._table.give_back(name, self._claims.pop(name))

    def _look_at_the_others(self) -> None:
        others = self._open - self._claims.keys()
        for row in self._table.rows() if others else ():
            if row.name in others:
                self._look_at(row)

    def _look_at(self, row: UnitRow) -> None:
        if row.state == "done":
            if _is_seen(self._folder / row.name):
                self._open.discard(row.name)
                say(f"{self._task_name}, {row.message}")
            elif row.age_s > _SEEN_WITHIN_S:
                self._table.reopen(row.name)
        elif row.losses > self._max_losses and self._table.is_free(row):  # the last attempt may still be running
            raise MachineError(
                f"{self._task_name}: a run of one of the best configurations, or the baselines, lost its process "
                f"{row.losses} times, most likely for lack of memory. Run the stage again with fewer "
                "workers (runtime.sweep_workers) or on a larger machine: it is resumed."
            )


def _is_seen(path: Path) -> bool:
    """Return whether a file is there; listing its folders first makes NFS look at what other machines wrote."""
    for folder in reversed(path.parents[:2]):
        with suppress(FileNotFoundError):  # not made yet, or being replaced
            next(folder.iterdir(), None)
    return path.exists()


def wait_for_file(path: Path, is_led: Callable[[], bool], *, every_s: float = 1.0) -> bool:
    """Wait until a file is there; return False if nobody leads the sweep any more before it is."""
    while not _is_seen(path):
        if not is_led():
            return False
        time.sleep(every_s)
    return True
