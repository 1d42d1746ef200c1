"""Optuna studies of a sweep: their database, the planned trials in them, and what their trials say.

Each arm has a study of its search, and all arms together have one of the best configurations over
seeds. What is to be done waits in Optuna's queue, as trials that were enqueued. Each has a *slot*,
its place in the plan: a point whose process died is enqueued again in the same slot. Any number of
processes take the next trial and run it (`run_next`), on one machine in SQLite, on several in
PostgreSQL.
"""

import json
import operator
import os
import platform
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from bertline.finetuning.job import DevCheck
from bertline.foundation.errors import ConfigError, MachineError
from bertline.foundation.files import append_lines, keep_json_lines, locked, read_json_lines
from bertline.foundation.formats import percent
from bertline.foundation.progress import warn
from bertline.foundation.seeds import seed_for
from bertline.sweep.config import (
    HalvingPrunerConfig,
    MedianPrunerConfig,
    ModelSamplerConfig,
    NoPrunerConfig,
    SweepConfig,
)
from bertline.tracking.config import STUDIES_VARIABLE, first_line, masked

optuna.logging.set_verbosity(optuna.logging.ERROR)  # its warnings repeat what the sweep says of a trial in one line
# Heartbeats and quasi-random points are marked so; `tests/contracts` and the tests that kill
# processes cover them.
warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)

# Of a trial whose heartbeat stopped for `_GRACE_S` seconds, the process or the machine is taken for
# dead.
_HEARTBEAT_S, _GRACE_S = 10, 60
_SQLITE_WAIT_S = 60
# Without these, a connection whose other end has vanished would wait for the kernel's two hours.
_KEEPALIVE = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


def configured_url(url: str) -> URL:
    """Return the address of the studies, with its driver: that of BERTLINE_STUDIES_URL if it is
    set, else this one."""
    try:
        parsed = make_url(os.environ.get(STUDIES_VARIABLE) or url)
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


def without_password(url: URL) -> str:
    """Return an address without its password.

    >>> without_password(configured_url("postgresql://ada:s3cret@db/studies"))
    'postgresql+psycopg://ada:***@db/studies'
    >>> without_password(configured_url("postgresql://db/s?password=x"))
    'postgresql+psycopg://db/s'
    """
    return masked(url.difference_update_query(["password"]).render_as_string(hide_password=True))


@contextmanager
def reached(url: str) -> Iterator[None]:
    """Turn a database that cannot be reached into one error that names it, without its password,
    and how to resume.

    Raises:
        MachineError: The block could not read or write the studies, or the driver of the database
            is not installed.
    """
    address = configured_url(url)
    try:
        yield
    except ImportError as error:
        if not (error.name or "").startswith("psycopg"):
            raise
        raise MachineError(
            "tracking.studies_url is a PostgreSQL database, and psycopg is not installed. "
            "Install it: pip install 'bertline[postgresql]'"
        ) from None
    except (SQLAlchemyError, StorageInternalError) as error:
        raise MachineError(
            f"the studies at {without_password(address)} cannot be read or written ({first_line(error)}). What "
            "had finished is kept: when the database can be reached, run the same command again to resume."
        ) from None  # a chained exception would show the password


class _Storage(RDBStorage):
    """Optuna's storage; a heartbeat that is missed while a server restarts ends no trial."""

    def record_heartbeat(self, trial_id: int) -> None:
        with suppress(SQLAlchemyError, StorageInternalError):
            super().record_heartbeat(trial_id)


def open_storage(url: str) -> RDBStorage:
    """Open the database of the studies at a `tracking.studies_url`, and create its tables if they
    are missing."""
    address = configured_url(url)
    options = {name: value for name, value in _KEEPALIVE.items() if name not in address.query}
    engine: dict[str, Any] = {"pool_pre_ping": True, "connect_args": options}  # reopen connections closed by the server
    text = address.render_as_string(hide_password=False)
    try:
        if address.get_backend_name() == "sqlite":
            Path(str(address.database)).parent.mkdir(parents=True, exist_ok=True)
            engine = {"connect_args": {"timeout": _SQLITE_WAIT_S}}
        return _Storage(text, engine_kwargs=engine, heartbeat_interval=_HEARTBEAT_S, grace_period=_GRACE_S)
    except (OSError, RuntimeError) as error:  # Optuna raises the latter for tables of another version
        raise MachineError(
            f"the studies at {without_password(address)} cannot be used ({first_line(error)}). Correct the rights "
            "of the folder, move tables of another version of Optuna away, or set tracking.studies_url to another one."
        ) from None


# Optuna counts resources in whole steps: dev checks between rungs (at the ends of epochs) have
# steps of their own.
_FIRST_RUNG = 1000
PrunerConfig = NoPrunerConfig | MedianPrunerConfig | HalvingPrunerConfig


def new_sampler(config: SweepConfig, seed: int) -> optuna.samplers.BaseSampler:
    """Return the sampler for the hyperparameters that the plan leaves open."""
    if not isinstance(config.sampler, ModelSamplerConfig):
        return optuna.samplers.RandomSampler(seed=seed)  # all points are planned, so it draws nothing
    startup = config.sampler.num_startup_trials
    if config.sampler.kind == "gp":
        return optuna.samplers.GPSampler(seed=seed, n_startup_trials=startup)
    # constant_liar: parallel workers do not all sample around the same point.
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup, constant_liar=True)


def new_pruner(config: PrunerConfig) -> optuna.pruners.BasePruner:
    """Return the pruner, to which trials report the steps of `step_of`."""
    match config:
        case NoPrunerConfig():
            return optuna.pruners.NopPruner()
        case MedianPrunerConfig():
            # Optuna prunes from step n_warmup_steps on, and epochs count from 1.
            return optuna.pruners.MedianPruner(
                n_startup_trials=config.num_startup_trials, n_warmup_steps=config.num_warmup_epochs + 1
            )
        case HalvingPrunerConfig(kind="successive_halving", reduction_factor=factor):
            return optuna.pruners.SuccessiveHalvingPruner(min_resource=_FIRST_RUNG, reduction_factor=factor)
        case HalvingPrunerConfig(reduction_factor=factor, num_rungs=num_rungs):
            last = _FIRST_RUNG * factor**num_rungs
            return optuna.pruners.HyperbandPruner(min_resource=_FIRST_RUNG, max_resource=last, reduction_factor=factor)


def checks_of(config: PrunerConfig) -> tuple[float, ...]:
    """Return the fractions of a trial's schedule at which its pruner needs a dev score, besides the
    ends of epochs.

    >>> checks_of(HalvingPrunerConfig(kind="successive_halving", reduction_factor=2, num_rungs=3))
    (0.125, 0.25, 0.5)
    """
    if not isinstance(config, HalvingPrunerConfig):
        return ()
    return tuple(config.reduction_factor**-rung for rung in range(config.num_rungs, 0, -1))


def step_of(config: PrunerConfig, check: DevCheck) -> int | None:
    """Return the step at which a dev check is reported; None if it is not reported.

    Halving counts fractions of the trial's own schedule, so that trials of different lengths are
    compared at the same rungs; the other pruners count epochs.
    """
    if isinstance(config, HalvingPrunerConfig):
        return round(check.share * _FIRST_RUNG * config.reduction_factor**config.num_rungs)
    return check.epoch if check.at_epoch_end else None


def workers_matter(sweep: SweepConfig) -> bool:
    """Return whether the result depends on how many workers share the trials, and on when each
    trial ends."""
    return isinstance(sweep.sampler, ModelSamplerConfig) or not isinstance(sweep.pruner, NoPrunerConfig)


ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
LIVE = (TrialState.WAITING, TrialState.RUNNING)
CURVE, REASON = "curve", "reason"
SLOT, _PROCESS = "slot", "process"


@dataclass(frozen=True, slots=True)
class Slot:
    """A planned trial."""

    name: str | int
    """Its place in the plan, unique within its study."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Hyperparameters; the sampler draws those that are missing."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """What else its objective needs, as JSON values."""


def open_study(storage: RDBStorage, name: str, sweep: SweepConfig) -> optuna.Study:
    """Open a study, or create it."""
    return optuna.create_study(
        study_name=name,
        storage=storage,
        sampler=new_sampler(sweep, seed=0),  # `run_next` seeds one for each trial
        pruner=new_pruner(sweep.pruner),
        direction="maximize",
        load_if_exists=True,
    )


def process_name(pid: int | None = None) -> str:
    """Return the name of this process, or of another one of this machine, in the trials that it
    runs."""
    return f"{platform.node()}:{pid or os.getpid()}"


def run_next(study: optuna.Study, objective: Callable[[optuna.Trial], float], sweep: SweepConfig, url: str) -> bool:
    """Run the next waiting trial, in the order in which they were enqueued; return False if none
    waits.

    Grid, random and quasi-random points are planned. Other samplers draw when a trial begins, with
    a seed of its slot.

    Args:
        objective: Runs the trial and returns its score; a score that is not a number makes the
            trial a failed one.
    """
    mine: list[int] = []
    with ExitStack() as taking:
        taking.enter_context(_only_one_takes(url))
        waiting = study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        if not waiting:
            return False
        arm, slot = study.study_name.rpartition("/")[2], waiting[0].user_attrs.get(SLOT)
        study.sampler = new_sampler(sweep, seed_for(sweep.seed, "sampler", arm, str(slot)) % 2**32)

        def run(trial: optuna.Trial) -> float:
            mine.append(trial.number)
            trial.set_user_attr(_PROCESS, process_name())
            taking.close()
            if SLOT not in trial.user_attrs:
                raise optuna.TrialPruned  # others took all that waited, and Optuna made a trial that nobody planned
            try:
                return objective(trial)
            except KeyboardInterrupt as stop:
                # Optuna would write to the database, and may wait for an operation of it that was
                # interrupted.
                raise SystemExit from stop
            except (optuna.TrialPruned, optuna.exceptions.UpdateFinishedTrialError):
                raise  # the latter: others have failed the trial, because this machine was silent
            except Exception as error:
                # Its message may have the user's text, which stays out of the records that a server
                # gets.
                trial.set_user_attr(REASON, f"It ended with a {type(error).__name__}, see the log of the sweep.")
                raise

        try:
            study.optimize(run, n_trials=1)
        except SystemExit as stop:  # Lightning, too, makes one of an interrupt
            raise KeyboardInterrupt(*getattr(stop.__context__, "args", ())) from stop
        except Exception:
            if mine and _is_lost(study.get_trials(deepcopy=False)[mine[0]]):
                # This machine was silent for so long (asleep, disconnected) that another one failed
                # the trial.
                warn(f"{study.study_name}, trial {mine[0]}: came too late, and is done again elsewhere")
                return True
            raise
    return True


@contextmanager
def _only_one_takes(url: str) -> Iterator[None]:
    """Keep other processes from taking a trial of a SQLite file, which lets two take the same one."""
    address = configured_url(url)
    file = Path(str(address.database))
    of_file = locked(file.with_name(f".{file.name}.lock")) if address.get_backend_name() == "sqlite" else nullcontext()
    with of_file:
        yield


def _is_lost(trial: FrozenTrial) -> bool:
    """Return whether a trial failed because its process ended before it did, and not by itself."""
    return trial.state == TrialState.FAIL and REASON not in trial.user_attrs


def enqueue_missing(study: optuna.Study, slots: Iterable[Slot], *, failed_too: bool = False) -> None:
    """Enqueue the slots that have no trial that has ended, runs or waits; `failed_too`: nor one
    that failed by itself.

    Those whose process died always are. Only one process at a time may enqueue slots of a study.
    """
    for slot in missing(study, slots, failed_too=failed_too):
        study.enqueue_trial(dict(slot.params), user_attrs={SLOT: slot.name, **slot.attributes})


def missing(study: optuna.Study, slots: Iterable[Slot], *, failed_too: bool = False) -> list[Slot]:
    """Return the slots that `enqueue_missing` would enqueue."""
    taken = {
        trial.user_attrs[SLOT]
        for trial in planned_trials(study)
        if not (_is_lost(trial) or (failed_too and trial.state == TrialState.FAIL))
    }
    return [slot for slot in slots if slot.name not in taken]


def planned_trials(study: optuna.Study, states: Sequence[TrialState] | None = None) -> list[FrozenTrial]:
    """Return the trials of a study that have a slot, in the order of their numbers."""
    trials = study.get_trials(deepcopy=False, states=tuple(states) if states is not None else None)
    return [trial for trial in trials if SLOT in trial.user_attrs]


def fail_trials(study: optuna.Study, url: str, process: str | None = None) -> None:
    """Fail the running trials of a process that has died; None: those of all processes."""
    with _only_one_takes(url):
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if process in (None, trial.user_attrs.get(_PROCESS)):
                study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)


def fail_silent_trials(study: optuna.Study, storage: RDBStorage, known: set[tuple[str, int]]) -> None:
    """Fail the running trials whose heartbeat has stopped.

    A trial whose process died before its first heartbeat would count as running forever, so each
    running trial is given one when it is first seen here: when it is not among the `known` (study,
    number), to which it is added.
    """
    study_id = storage.get_study_id_from_name(study.study_name)
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if (key := (study.study_name, trial.number)) not in known:
            storage.record_heartbeat(storage.get_trial_id_from_study_id_trial_number(study_id, trial.number))
            known.add(key)
    optuna.storages.fail_stale_trials(study)


def best_trials(study: optuna.Study, num_best: int) -> list[FrozenTrial]:
    """Return the finished trials with the highest scores, best first, each point once; ties keep
    the order of the plan.

    Pruned trials are not considered.
    """
    finished = planned_trials(study, (TrialState.COMPLETE,))
    finished.sort(key=lambda trial: (-trial.values[0], trial.user_attrs[SLOT]))
    by_point: dict[str, FrozenTrial] = {}
    for trial in finished:
        by_point.setdefault(json.dumps(trial.params, sort_keys=True), trial)
    return list(by_point.values())[:num_best]


def importances(trials: Sequence[FrozenTrial]) -> dict[str, float]:
    """Return how much each hyperparameter explains of the differences in score, the largest first;
    they add up to 1.

    That is Optuna's PED-ANOVA. Empty with fewer than 20 finished trials, which tell little, and
    where a single hyperparameter is varied.
    """
    finished = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if len(finished) < 20 or len(finished[0].params) < 2:
        return {}
    study = optuna.create_study(direction="maximize")
    study.add_trials(finished)
    return optuna.importance.get_param_importances(study)


def curve_of(trial: FrozenTrial) -> list[list[float]]:
    """Return the dev scores by completed fraction of the schedule: `[[share, score], ...]`."""
    return trial.user_attrs.get(CURVE, [])


def last_dev(trial: FrozenTrial) -> float | None:
    """Return the score of a finished trial, else the last dev score of the trial; None if it has
    none."""
    if trial.state == TrialState.COMPLETE:
        return trial.value
    curve = curve_of(trial)
    return curve[-1][1] if curve else None


def reason_of(trial: FrozenTrial) -> str | None:
    """Return in a sentence why a trial failed or was stopped early; None for a finished one."""
    if trial.state == TrialState.PRUNED and (curve := curve_of(trial)):
        share, score = curve[-1]
        return f"Stopped early, after {percent(share)} of its schedule, with a score of {score:.3f} on dev."
    if trial.state == TrialState.FAIL:
        return str(trial.user_attrs.get(REASON, "Its process was stopped or died; the point was done again."))
    return None


def trial_event(arm: str, trial: FrozenTrial, metric: str) -> dict[str, Any]:
    """Return the content of the line of events.jsonl for a trial that has ended."""
    dev = last_dev(trial)
    return {
        "arm": arm,
        "kind": "trial",
        "number": trial.number,
        "state": trial.state.name,
        "reason": reason_of(trial),
        "params": trial.params,
        "metrics": {f"dev/{metric}": dev} if dev is not None else {},
        "curve": curve_of(trial),
        "time_s": trial.duration.total_seconds() if trial.duration is not None else 0.0,
    }


def add_missing_events(run_folder: Path, events: Iterable[dict[str, Any]]) -> None:
    """Append the events that are not in events.jsonl yet; only the process that leads the sweep may
    call this.

    An incomplete last line (its writer was killed) is cut off.
    """
    path = run_folder / "events.jsonl"
    key = operator.itemgetter("arm", "kind", "number")
    known = {key(event) for event in read_json_lines(path)}
    if path.exists() and not path.read_bytes().endswith(b"\n"):
        keep_json_lines(path, lambda _: True)
    if new := [json.dumps(event) for event in events if key(event) not in known]:
        append_lines(path, new)
