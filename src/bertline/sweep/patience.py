"""Waiting for a database server that is away: each operation is retried, and none takes effect twice.

A connection can break after the server has committed and before the answer arrives. A retry must then find its own
earlier work, so each operation is either idempotent or recognises what an earlier attempt of it did.
"""

from __future__ import annotations

import copy
import functools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import uuid4

from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, PendingRollbackError
from sqlalchemy.orm import Session

from bertline.foundation.progress import say, warn

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE_S = 300.0
"""How long an operation waits for a server that is away."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
# SQLSTATE classes: connection, resources, operator intervention (shutdown, start-up), rollback (a failover), read-only.
_OUTAGES = ("08", "53", "57", "40", "25006")
# PostgreSQL gives no SQLSTATE when it refuses a connection for good.
_REFUSALS = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied", "not permitted")


def is_outage(error: BaseException) -> bool:
    """Return whether an error says that the server is away or restarting, rather than that the request is wrong.

    The whole chain counts: Optuna reads the trials a second time if it cannot, in a transaction that has failed
    already, and the error of that says nothing about the first.
    """
    found: BaseException | None = error
    while found is not None:
        # A pending rollback: the transaction's connection was lost before, and Optuna has swallowed the error of that.
        if isinstance(found, PendingRollbackError) or (isinstance(found, DBAPIError) and _is_of_an_outage(found)):
            return True
        found = found.__cause__ or found.__context__
    return False


def _is_of_an_outage(error: DBAPIError) -> bool:
    if error.connection_invalidated:
        return True
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return str(state).startswith(_OUTAGES)
    return not any(words in str(error.orig) for words in _REFUSALS)


class Patience:
    """Repeats operations while the server is away, and knows for how long it has been in contact without a gap.

    Args:
        shown: Address of the server, without its password.
        patience_s: Longest wait of an operation; 0: never wait (for a file, which has no server).
        gap_s: Longest time between two successful operations that still counts as continuous contact.
        says: Whether to print that it waits.
    """

    def __init__(self, shown: str, *, patience_s: float, gap_s: float, says: bool) -> None:
        self._shown, self._patience_s, self._gap_s, self._says = shown, patience_s, gap_s, says
        self._local = threading.local()
        self._waits = False
        self._contact: tuple[float, float] | None = None

    def __call__(self, operation: Callable[[], T]) -> T:
        """Run an operation until it succeeds; it must be safe to repeat.

        Raises:
            Exception: What the operation raised, if that is no outage or the outage lasts too long.
        """
        deadline, pause = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
        while True:
            try:
                result = operation()
            except Exception as error:
                if not is_outage(error):
                    raise
                self._contact = None
                if getattr(self._local, "off", False) or (left_s := deadline - time.monotonic()) <= 0:
                    raise
                self._say_that_it_waits()
                time.sleep(min(left_s, pause * random.uniform(0.5, 1.0)))  # not all processes at the same moment
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                continue
            self._succeeded()
            return result

    @contextmanager
    def off(self) -> Iterator[None]:
        """In this thread, let the first outage raise: for a block that is repeated as a whole, or may fail."""
        before = getattr(self._local, "off", False)
        self._local.off = True
        try:
            yield
        finally:
            self._local.off = before

    @property
    def in_contact_s(self) -> float:
        """Seconds since contact began that has had no gap; after an outage nobody's silence counts as death at once."""
        contact, now = self._contact, time.time()
        return now - contact[0] if contact is not None and 0 <= now - contact[1] <= self._gap_s else 0.0

    def _succeeded(self) -> None:
        now = time.time()  # it counts the time of a machine that sleeps, too
        contact = self._contact
        begun = now if contact is None or not 0 <= now - contact[1] <= self._gap_s else contact[0]
        self._contact = begun, now
        if self._waits:
            self._waits = False
            if self._says:
                say(f"The database of the studies at {self._shown} is back.")

    def _say_that_it_waits(self) -> None:
        if not self._waits and self._says:
            warn(
                f"the database of the studies at {self._shown} cannot be reached; waiting for up to "
                f"{self._patience_s:.0f} s, nothing is lost"
            )
        self._waits = True


def _patient(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[PatientStorage, P], T]:
    """Return an idempotent method of `RDBStorage` that waits for the server."""

    @functools.wraps(method)
    def patient(self: PatientStorage, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.patience(lambda: method(self, *args, **kwargs))

    return patient


_TOKEN = "bertline:token"
"""System attribute that says which call created a trial."""


class PatientStorage(RDBStorage):
    """Optuna's storage, whose operations wait for a server that is away; `tests/contracts` checks the private names."""

    def __init__(self, patience: Patience, url: str, **options: Any) -> None:
        self.patience = patience
        super().__init__(url, **options)

    create_new_study = _patient(RDBStorage.create_new_study)  # a repeated one raises DuplicatedStudyError: it is loaded
    set_study_user_attr = _patient(RDBStorage.set_study_user_attr)
    set_study_system_attr = _patient(RDBStorage.set_study_system_attr)
    get_study_id_from_name = _patient(RDBStorage.get_study_id_from_name)
    get_study_name_from_id = _patient(RDBStorage.get_study_name_from_id)
    get_study_directions = _patient(RDBStorage.get_study_directions)
    get_study_user_attrs = _patient(RDBStorage.get_study_user_attrs)
    get_study_system_attrs = _patient(RDBStorage.get_study_system_attrs)
    get_all_studies = _patient(RDBStorage.get_all_studies)
    get_trial = _patient(RDBStorage.get_trial)
    get_trial_id_from_study_id_trial_number = _patient(RDBStorage.get_trial_id_from_study_id_trial_number)
    set_trial_user_attr = _patient(RDBStorage.set_trial_user_attr)
    set_trial_system_attr = _patient(RDBStorage.set_trial_system_attr)
    set_trial_intermediate_value = _patient(RDBStorage.set_trial_intermediate_value)
    record_heartbeat = _patient(RDBStorage.record_heartbeat)
    _set_trial_param = _patient(RDBStorage._set_trial_param)  # a second row of one name is ignored
    _get_trials = _patient(RDBStorage._get_trials)
    _get_best_trial_id = _patient(RDBStorage._get_best_trial_id)
    _get_stale_trial_ids = _patient(RDBStorage._get_stale_trial_ids)

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """Change the state; an end that an earlier attempt had written counts as success.

        A repeated change to RUNNING returns False: whoever takes a trial marks it first (see `take_trial`).
        """
        attempts = 0

        def attempt() -> bool:
            nonlocal attempts
            attempts += 1
            try:
                return RDBStorage.set_trial_state_values(self, trial_id, state, values)
            except UpdateFinishedTrialError:
                found = RDBStorage.get_trial(self, trial_id)
                if attempts > 1 and found.state == state and (found.values or None) == (list(values or []) or None):
                    return True
                raise

        return self.patience(attempt)

    def _create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> FrozenTrial:
        if template_trial is not None:
            template_trial = copy.deepcopy(template_trial)
            template_trial.system_attrs[_TOKEN] = uuid4().hex
        return self.patience(lambda: RDBStorage._create_new_trial(self, study_id, template_trial))

    def _get_prepared_new_trial(
        self, study_id: int, template_trial: FrozenTrial | None, session: Session
    ) -> models.TrialModel:
        """Return the trial that an earlier attempt of this call has created, else create it; the study is locked."""
        if template_trial is not None and (token := template_trial.system_attrs.get(_TOKEN)) is not None:
            attribute = models.TrialSystemAttributeModel
            created: models.TrialModel | None = (
                session.query(models.TrialModel)
                .join(attribute, attribute.trial_id == models.TrialModel.trial_id)
                .filter(models.TrialModel.study_id == study_id)
                .filter(attribute.key == _TOKEN, attribute.value_json == json.dumps(token))
                .one_or_none()
            )
            if created is not None:
                return created
        return super()._get_prepared_new_trial(study_id, template_trial, session)
