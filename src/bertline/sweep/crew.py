"""The processes that share the work of a sweep: one leads, and on other machines others join it.

The leader alone decides what is to be done (which configurations are repeated, which win), and writes the result. All
members, the leader too, take trials and units of work from the database of the studies, and do them in worker processes
of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from bertline.foundation.errors import ConfigError
from bertline.foundation.files import write_atomically
from bertline.foundation.progress import say
from bertline.foundation.work import Work as StageWork
from bertline.sweep.baseline_scores import BASELINES, score_baselines
from bertline.sweep.bench import Bench
from bertline.sweep.job import PlannedSweep, SweepJob, planned
from bertline.sweep.members import member_name, same_machine
from bertline.sweep.repetitions import Repetition, read_test, train
from bertline.sweep.store import StudyStore, is_shared
from bertline.sweep.trials import Studies, TrialWork, opened_studies
from bertline.sweep.units import SharedUnits, Unit, UnitTable, wait_for_file
from bertline.sweep.workers import Work, Workers, started_workers

_LEADER = "leader"
"""File of the run folder with the name of the process that leads."""
_FINISHED = "finished"
"""Attribute of a sweep's first study: the identity of the run folder in which it is finished."""


def run_unit(bench: Bench, unit: Unit) -> str:
    """Do a unit of work in a worker process, and return the progress message."""
    if (bench.job.run_folder / unit.result).exists():
        return f"{unit.result}: was done already"  # by a member that died before it could say so
    match unit.kind:
        case "baselines":
            return score_baselines(bench)
        case "train":
            return train(bench, Repetition(**unit.argument["repetition"]))
        case "test":
            return read_test(bench, Repetition(**unit.argument["repetition"]), kept=unit.argument["kept"])


class Crew:
    """The leader's side of the shared work.

    Args:
        plan: The planned sweep.
        studies: Its studies.
        table: Its other units of work.
        workers: Worker processes of the leader.
    """

    def __init__(self, plan: PlannedSweep, studies: Studies, table: UnitTable, workers: Workers) -> None:
        self._plan, self._table = plan, table
        self.studies, self.workers = studies, workers
        self.baselines = self.shared([BASELINES])
        """The baselines, for workers that would be idle."""

    def shared(self, units: Sequence[Unit]) -> SharedUnits:
        """Offer units to all members."""
        job = self._plan.job
        return SharedUnits(
            self._table,
            units,
            run=run_unit,
            run_folder=job.run_folder,
            task_name=job.task_name,
            max_losses=job.sweep.max_retries,
        )

    def finish(self, units: Sequence[Unit]) -> None:
        """Offer units, work on them, and return when all are done."""
        self.workers.work_through(self.shared(units), filler=self.baselines)

    def dismiss(self) -> None:
        """Tell the other members that the sweep is finished."""
        study = next(iter(self.studies.by_arm.values()))
        study.set_user_attr(_FINISHED, self._table.sweep)


@contextmanager
def leading(plan: PlannedSweep, *, in_process: bool) -> Iterator[Crew]:
    """Open the store, queue the trials, start workers, and give signs of life until the block ends.

    Raises:
        MachineError: The store cannot be reached.
    """
    job = plan.job
    file = _identity_file(job.run_folder)
    # A sweep that is resumed has reached its database before, so its address is right.
    store = StudyStore(job.studies_url, waits=file.exists())
    if not file.exists():
        write_atomically(file, uuid4().hex)
    write_atomically(job.run_folder / _LEADER, member_name())
    with store.reached():
        table = UnitTable(store, file.read_text(encoding="utf-8"))
        table.give_back_own()
        studies = opened_studies(plan, table)
        with _working(plan, studies, table, in_process=in_process) as workers:
            yield Crew(plan, studies, table, workers)


def join(work: StageWork, *, is_led: Callable[[], bool]) -> bool:
    """Help with a sweep that another process leads, on any machine that shares its run folder and its database.

    Args:
        work: The work of the leader: the same frozen run folder.
        is_led: Whether a process leads the sweep now. Called about once a second.

    Returns:
        Whether the sweep is finished. False: nobody leads it any more; what this process had begun is done.

    Raises:
        MachineError: The store cannot be reached, or worker processes keep dying.
    """
    return join_sweep(SweepJob.of(work), is_led=is_led)


def join_sweep(job: SweepJob, *, is_led: Callable[[], bool], in_process: bool = False) -> bool:
    """Help with a sweep; see `join`.

    Args:
        job: The sweep.
        is_led: See `join`.
        in_process: Do the work in this process instead of in worker processes.
    """
    file = _identity_file(job.run_folder)
    if not wait_for_file(file, is_led):
        return False
    plan = planned(job)
    _check_shared(job)
    store = StudyStore(job.studies_url, waits=True)
    with store.reached():
        table = UnitTable(store, file.read_text(encoding="utf-8"))
        table.give_back_own()
        studies = opened_studies(plan, table, leads=False)
        member = _Member(job, studies, table, is_led)
        with _working(plan, studies, table, in_process=in_process) as workers:
            workers.work_through(member)
        return member.has_ended()


@contextmanager
def _working(plan: PlannedSweep, studies: Studies, table: UnitTable, *, in_process: bool) -> Iterator[Workers]:
    """Yield workers and give signs of life; if the block is left early, let the others have what was in progress."""
    try:
        with table.store.beating(table.beat), started_workers(plan, in_process=in_process) as workers:
            yield workers
    except BaseException:
        # The workers have ended. A stop has little time, and a server may be what failed: then the others wait.
        with suppress(Exception), table.store.patience.off():
            table.give_back_own()
            studies.give_back_own()
        raise


class _Member:
    """A `Source` of whatever a sweep that another process leads has to do."""

    def __init__(self, job: SweepJob, studies: Studies, table: UnitTable, is_led: Callable[[], bool]) -> None:
        self._job, self._studies, self._table, self._is_led = job, studies, table, is_led
        self._tokens: dict[str, str] = {}
        self._leaves = False

    def take(self) -> Work | None:
        """See `Source`."""
        if self._leaves or not self._is_led():
            return None
        if (trial := self._studies.take()) is not None:
            return trial
        claimed = self._table.claim(None, max_losses=self._job.sweep.max_retries)
        if claimed is None:
            return None
        self._tokens[claimed.unit.result] = claimed.token
        return Work(run_unit, claimed.unit)

    def is_finished(self) -> bool:
        """See `Source`."""
        self._studies.recover()
        self._leaves = self._leaves or self.has_ended() or not self._is_led()
        return self._leaves

    def done(self, work: Work, result: str) -> None:
        """See `Source`."""
        if isinstance(work.argument, TrialWork):
            self._studies.done(work, result)
            return
        self._table.finish(work.argument.result, result)
        say(f"{self._job.task_name}, {result}")

    def lost(self, work: Work) -> None:
        """See `Source`."""
        if isinstance(work.argument, TrialWork):
            self._studies.lost(work)
            return
        self._table.give_back(work.argument.result, self._tokens[work.argument.result])

    def has_ended(self) -> bool:
        """Return whether the sweep is finished."""
        study = next(iter(self._studies.by_arm.values()))
        return study.user_attrs.get(_FINISHED) == self._table.sweep


def _check_shared(job: SweepJob) -> None:
    """Raise if another machine leads a sweep whose studies are in a file: locks of files may not reach this one."""
    leader = (job.run_folder / _LEADER).read_text(encoding="utf-8") if (job.run_folder / _LEADER).exists() else ""
    if leader and not is_shared(job.studies_url) and not same_machine(leader):
        raise ConfigError(
            "tracking.studies_url is a SQLite file, which several machines cannot share, and another machine leads "
            "this sweep. Give postgresql://HOST/DATABASE, or let one machine do the sweep."
        )


def _identity_file(run_folder: Path) -> Path:
    """Return the file with the identity of a run folder: one that is deleted and made again has another sweep."""
    return run_folder / "owner"
