"""Records of a sweep that outlive its processes: the database of the studies, and events.jsonl.

The database is SQLite on one machine, or PostgreSQL if several machines share a study.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from bertline.foundation.errors import BertlineError, ConfigError, MachineError
from bertline.foundation.files import write_atomically
from bertline.foundation.seeds import seed_for


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file among the processes of this machine; it is released if the process is killed."""
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


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


URL_VARIABLE = "BERTLINE_STUDIES_URL"
# A trial without a heartbeat for `_GRACE_S` seconds counts as dead and is retried. This is for trials of other
# machines: the death of a process on this machine is noticed at once.
_HEARTBEAT_S, _GRACE_S = 10, 60
_SQLITE_WAIT_S = 60

optuna.logging.set_verbosity(optuna.logging.WARNING)


class StudyStore:
    """Connection of one process to the database of studies.

    Args:
        url: URL as in `tracking.studies_url`; the environment variable BERTLINE_STUDIES_URL takes precedence.
        on_stale: Called with each trial that was failed because its heartbeat stopped.

    Raises:
        ConfigError: The URL is not valid, or names another kind of database.
        MachineError: The database cannot be reached.
    """

    def __init__(self, url: str, *, on_stale: Callable[[optuna.Study, FrozenTrial], None] | None = None) -> None:
        self._url = _parsed(os.environ.get(URL_VARIABLE) or url)
        self._file = Path(str(self._url.database)) if self._url.get_backend_name() == "sqlite" else None
        engine: dict[str, Any] = {"pool_pre_ping": True}  # reopen connections that the server has closed
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            engine = {"connect_args": {"timeout": _SQLITE_WAIT_S}}
        with self.reached():
            # Used only for locks; each lock has its own connection, which is closed with it.
            self._locks = sqlalchemy.create_engine(self._url, poolclass=sqlalchemy.pool.NullPool)
            # Two processes that create the tables at once would fail.
            with self.exclusive("tables"), _without_experimental_warnings():
                self.storage = RDBStorage(
                    self._url.render_as_string(hide_password=False),
                    engine_kwargs=engine,
                    heartbeat_interval=_HEARTBEAT_S,
                    grace_period=_GRACE_S,
                    heartbeat_stale_trial_callback=on_stale,
                )

    @property
    def shown(self) -> str:
        """URL without its password."""
        return self._url.render_as_string(hide_password=True)

    @contextmanager
    def exclusive(self, name: str) -> Iterator[None]:
        """Hold a lock among all processes that use this database; it is released if the process is killed."""
        if self._file is not None:
            with locked(self._file.with_name(f".{self._file.name}.lock")):
                yield
            return
        key = seed_for("bertline studies", name) - 2**63
        with self._locks.connect() as connection:
            connection.execute(sqlalchemy.text("SELECT pg_advisory_lock(:key)"), {"key": key})
            try:
                yield
            finally:
                connection.execute(sqlalchemy.text("SELECT pg_advisory_unlock(:key)"), {"key": key})

    @contextmanager
    def beating(self, trial_id: int) -> Iterator[None]:
        """Record a heartbeat for a trial every `_HEARTBEAT_S` seconds until the block ends."""
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(_HEARTBEAT_S):
                # After a short outage of the server the next heartbeat succeeds; a long outage fails the trial itself.
                with suppress(SQLAlchemyError, optuna.exceptions.StorageInternalError):
                    self.storage.record_heartbeat(trial_id)

        thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def fail_silent_trials(self, study: optuna.Study) -> None:
        """Fail the trials whose heartbeat stopped, and call `on_stale` for each."""
        with _without_experimental_warnings():
            optuna.storages.fail_stale_trials(study)

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Turn a lost connection into an error that names the database, without its password, and how to resume."""
        try:
            yield
        except (ImportError, SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
            raise self._unreachable(error) from None  # a chained exception would show the password

    def _unreachable(self, error: Exception) -> BertlineError:
        if isinstance(error, ImportError):
            return MachineError(
                "tracking.studies_url is a PostgreSQL database, and psycopg is not installed. "
                "Install it: pip install 'bertline[postgresql]'"
            )
        cause = error.__cause__ or error
        reason = str(getattr(cause, "orig", None) or cause).strip().partition("\n")[0]
        if self._url.password:
            reason = reason.replace(str(self._url.password), "***")
        return MachineError(
            f"the studies at {self.shown} cannot be read or written ({reason}). What had finished is kept: when the "
            "database can be reached, run the stage again to resume."
        )


def _parsed(url: str) -> URL:
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


@contextmanager
def _without_experimental_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        # Heartbeats are marked experimental; `tests/contracts` and the tests that kill processes cover them.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield
