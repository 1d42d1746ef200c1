"""Records of a sweep that outlive its processes: the database of the studies, and events.jsonl.

The database is SQLite on one machine, or PostgreSQL if several machines share a study.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

import optuna
import sqlalchemy
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from bertline.foundation.errors import ConfigError, MachineError
from bertline.foundation.files import locked, write_atomically
from bertline.foundation.seeds import seed_for
from bertline.sweep.patience import PATIENCE_S, Patience, PatientStorage
from bertline.tracking.config import STUDIES_VARIABLE, masked


def add_missing_events(run_folder: Path, events: Iterable[dict[str, Any]]) -> None:
    """Append the events that are not in events.jsonl yet; safe to call from several processes at once.

    An incomplete last line (its writer was killed) is cut off.
    """
    path = run_folder / "events.jsonl"
    with locked(path.with_name(f".{path.name}.lock")):
        content = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = content[: content.rfind("\n") + 1]
        known = {_key(json.loads(line)) for line in whole.splitlines()}
        new = [json.dumps(event) + "\n" for event in events if _key(event) not in known]
        if whole != content:
            write_atomically(path, whole)
        if new:
            with path.open("a", encoding="utf-8") as handle:
                handle.write("".join(new))


def _key(event: dict[str, Any]) -> tuple[Any, ...]:
    return event["arm"], event["kind"], event["number"]


# A trial without a heartbeat for `_GRACE_S` seconds counts as dead and is retried. This is for trials of other
# machines: the death of a process on this machine is noticed at once.
_HEARTBEAT_S, _GRACE_S = 10, 60
_SQLITE_WAIT_S = 60
_SECONDS_SQLITE = "(julianday('now') - 2440587.5) * 86400"
_SECONDS_POSTGRESQL = "EXTRACT(EPOCH FROM clock_timestamp())"
# Without these, a connection whose other end has vanished would wait for the kernel's two hours.
_KEEPALIVE = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}

optuna.logging.set_verbosity(optuna.logging.WARNING)
# Its one warning shows the SQL of a query that the server did not answer; `Patience` says that in a sentence.
optuna.logging.get_logger("optuna.storages._rdb.storage").setLevel(optuna.logging.ERROR)

T = TypeVar("T")


class StudyStore:
    """Connection of one process to the database of studies; while a server is away, its operations wait.

    Args:
        url: URL as in `tracking.studies_url`; the environment variable BERTLINE_STUDIES_URL takes precedence.
        waits: Whether to wait already for the first contact; else a server that is away is an error at once.
        says: Whether to print that it waits.

    Raises:
        ConfigError: The URL is not valid, or names another kind of database.
        MachineError: The database cannot be reached.
    """

    def __init__(self, url: str, *, waits: bool = False, says: bool = True) -> None:
        self._url = database_url(os.environ.get(STUDIES_VARIABLE) or url)
        self._file = Path(str(self._url.database)) if self._url.get_backend_name() == "sqlite" else None
        engine: dict[str, Any] = {"pool_pre_ping": True}  # reopen connections that the server has closed
        engine["connect_args"] = {name: value for name, value in _KEEPALIVE.items() if name not in self._url.query}
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            engine = {"connect_args": {"timeout": _SQLITE_WAIT_S}}
        patience_s = PATIENCE_S if self._file is None else 0.0
        self.patience = Patience(self.shown, patience_s=patience_s, gap_s=2 * _HEARTBEAT_S, says=says)
        self._held = threading.local()
        with self.reached(), nullcontext() if waits else self.patience.off():
            # Used only for locks; each lock has its own connection, which is closed with it.
            self._locks = sqlalchemy.create_engine(
                self._url, poolclass=sqlalchemy.pool.NullPool, connect_args=engine["connect_args"]
            )
            # Two processes that create the tables at once would fail.
            self.storage = self.exclusively("tables", lambda: self._opened_storage(engine))
        sqlalchemy.event.listen(self.storage.engine, "checkout", self._check_that_the_lock_is_held)

    def _opened_storage(self, engine: dict[str, Any]) -> PatientStorage:
        with _without_experimental_warnings():
            return PatientStorage(
                self.patience,
                self._url.render_as_string(hide_password=False),
                engine_kwargs=engine,
                heartbeat_interval=_HEARTBEAT_S,
                grace_period=_GRACE_S,
            )

    @property
    def shown(self) -> str:
        """URL without its password."""
        return shown(self._url)

    def exclusively(self, name: str, block: Callable[[], T]) -> T:
        """Run a block under a lock among all processes that use this database; it is released if the process is killed.

        Args:
            name: Name of the lock.
            block: Run again as a whole if the server, and with it the lock, was lost. It must be safe to repeat.
        """
        if self._file is not None:
            with locked(self._file.with_name(f".{self._file.name}.lock")):
                return block()
        key = {"key": seed_for("bertline studies", name) - 2**63}

        def locked_block() -> T:
            with self._locks.connect() as connection, self.patience.off():
                connection.execute(sqlalchemy.text("SELECT pg_advisory_lock(:key)"), key)
                self._held.by = connection
                try:
                    return block()
                finally:
                    self._held.by = None
                    connection.execute(sqlalchemy.text("SELECT pg_advisory_unlock(:key)"), key)

        return self.patience(locked_block)

    def _check_that_the_lock_is_held(self, *_: object) -> None:
        """Raise in a locked block if the server was lost: an operation would reconnect, while another has the lock."""
        if (connection := getattr(self._held, "by", None)) is not None:
            connection.execute(sqlalchemy.text("SELECT 1"))

    def add_events(self, run_folder: Path, events: Iterable[dict[str, Any]]) -> None:
        """Call `add_missing_events` under a lock among all machines: lock files may not reach other machines."""
        self.exclusively(f"events of {run_folder.name}", lambda: add_missing_events(run_folder, events))

    @contextmanager
    def beating(self, beat: Callable[[], object]) -> Iterator[None]:
        """Call `beat`, which records a heartbeat, every `_HEARTBEAT_S` seconds until the block ends."""
        stop = threading.Event()

        def keep_beating() -> None:
            while not stop.wait(_HEARTBEAT_S):
                # The next beat succeeds after an outage; after one, nobody is taken for dead at once.
                with self.patience.off(), suppress(SQLAlchemyError, optuna.exceptions.StorageInternalError):
                    beat()

        thread = threading.Thread(target=keep_beating, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    @property
    def can_tell_the_silent(self) -> bool:
        """Whether contact has lasted for as long as the grace: else the server was away, and not the others."""
        return self.patience.in_contact_s >= _GRACE_S

    def silent_trials(self, study: optuna.Study) -> list[int]:
        """Return the ids of running trials whose heartbeat stopped for longer than the grace."""
        found = self.storage._get_stale_trial_ids(study._study_id)
        return found if self.can_tell_the_silent else []  # asked afterwards: the question itself may have waited

    def execute(self, operation: Callable[[sqlalchemy.Connection], T]) -> T:
        """Run an operation in one transaction; it is repeated after an outage, so it must be safe to repeat."""

        def attempt() -> T:
            with self.storage.engine.begin() as connection:
                return operation(connection)

        return self.patience(attempt)

    @property
    def grace_s(self) -> float:
        """Seconds after which whoever gave no sign of life counts as dead."""
        return _GRACE_S

    @property
    def now(self) -> str:
        """SQL expression for the database's time, in seconds: clocks of machines differ."""
        return _SECONDS_SQLITE if self._file is not None else _SECONDS_POSTGRESQL

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Turn a lost connection into an error that names the database, without its password, and how to resume."""
        try:
            yield
        except (ImportError, SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
            raise self._unreachable(error) from None  # a chained exception would show the password

    def _unreachable(self, error: Exception) -> Exception:
        if isinstance(error, ImportError):
            if not (error.name or "").startswith("psycopg"):
                return error
            return MachineError(
                "tracking.studies_url is a PostgreSQL database, and psycopg is not installed. "
                "Install it: pip install 'bertline[postgresql]'"
            )
        cause = error.__cause__ or error
        reason = str(getattr(cause, "orig", None) or cause).strip().partition("\n")[0]
        reason = without_password(reason, self._url)
        return MachineError(
            f"the studies at {self.shown} cannot be read or written ({reason}). What had finished is kept: when the "
            "database can be reached, run the stage again to resume."
        )


def is_shared(url: str) -> bool:
    """Return whether several machines can use a database of studies (see `StudyStore` for the URL)."""
    return database_url(os.environ.get(STUDIES_VARIABLE) or url).get_backend_name() != "sqlite"


def database_url(url: str) -> URL:
    """Parse an address of `tracking.studies_url`, and choose the driver.

    Raises:
        ConfigError: It is no address of a database, or of a kind of database that is not supported.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ConfigError(
            "tracking.studies_url is not an address of a database. Give sqlite:///FILE or postgresql://HOST/DATABASE."
        ) from None  # the URL may contain a password
    match parsed.get_backend_name():
        case "sqlite" if parsed.database not in (None, "", ":memory:"):
            return parsed
        case "postgresql" | "postgres":
            return parsed.set(drivername="postgresql+psycopg")
        case other:
            raise ConfigError(
                f"tracking.studies_url is of the kind {other!r}; expected sqlite:///FILE or postgresql://HOST/DATABASE."
            )


def shown(url: URL) -> str:
    """Return an address without its password.

    >>> shown(database_url("postgresql://ada:s3cret@db/studies")), shown(database_url("postgresql://db/s?password=x"))
    ('postgresql+psycopg://ada:***@db/studies', 'postgresql+psycopg://db/s')
    """
    return masked(url.difference_update_query(["password"]).render_as_string(hide_password=True))


def without_password(text: str, url: URL) -> str:
    """Return a message about an address, in which the password of that address is masked."""
    for password in filter(None, [url.password, url.query.get("password")]):
        text = text.replace(str(password), "***")
    return text


@contextmanager
def _without_experimental_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        # Heartbeats are marked experimental; `tests/contracts` and the tests that kill processes cover them.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield
