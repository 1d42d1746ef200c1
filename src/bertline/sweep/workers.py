"""Worker processes of a sweep, each with the data loaded; one that dies is restarted, and its work is returned.

A sweep runs for hours, and a process may be killed (by lack of memory, a scheduler, a person). The supervising process
does no work that could kill it. It assigns units of work one at a time, so it knows at once which unit a dead worker
had.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from bertline.foundation.errors import BertlineError, MachineError
from bertline.foundation.importing import uncollected_imports
from bertline.foundation.parallel import end_with_parent
from bertline.foundation.progress import warn
from bertline.sweep.bench import Bench, num_sweep_workers
from bertline.sweep.job import PlannedSweep
from bertline.sweep.members import note_done


@dataclass(frozen=True, slots=True)
class Work:
    """A unit of work: a module-level function, called with the bench and the argument."""

    function: Callable[[Bench, Any], Any]
    argument: Any


class Source(Protocol):
    """Provides work and is notified when it is finished or lost. Called by the supervisor only."""

    def take(self) -> Work | None:
        """The next unit of work; None if none is available now."""

    def is_finished(self) -> bool:
        """Whether all work is done."""

    def done(self, work: Work, result: Any) -> None:
        """Called when a unit is finished."""

    def lost(self, work: Work) -> None:
        """Called when the worker process died before the unit was finished."""


MAX_DEATHS = 10
"""Number of consecutive deaths of workers, without a finished unit of work in between, at which the sweep fails."""
_LOOK_AGAIN_S = 1.0
_LAST_WORDS_S = 10.0


class Workers(Protocol):
    """Interface to the processes that do the work."""

    def work_through(self, source: Source, *, filler: Source | None = None) -> None:
        """Work until the source is finished.

        Args:
            source: Source of the work.
            filler: Work for workers that would be idle. It may be unfinished, or not started, on return, and after a
                worker died at it no more of it is assigned: pass it to the next call again, and finally as the source.
        """


class ThisProcess:
    """Does all work in this process: no other process has to be started, but none would notice its death either."""

    def __init__(self, plan: PlannedSweep) -> None:
        self._bench = Bench(plan)

    def work_through(self, source: Source, *, filler: Source | None = None) -> None:
        """See `Workers`; `filler` is not used, as a single process has no idle workers."""
        while True:
            work = source.take()
            if work is not None:
                source.done(work, work.function(self._bench, work.argument))
                note_done(self._bench.job.run_folder)
            elif source.is_finished():
                return
            else:
                time.sleep(_LOOK_AGAIN_S)


class WorkerProcesses:
    """As many processes as `num_sweep_workers` says, started when there is work for the first time."""

    def __init__(self, plan: PlannedSweep) -> None:
        self._plan = plan
        self._members: list[_Member] = []
        self._deaths = 0
        self._filler_lost = False

    def work_through(self, source: Source, *, filler: Source | None = None) -> None:
        """See `Workers`.

        Raises:
            MachineError: Workers keep dying without finishing any work.
            Exception: The exception that a unit of work raised.
        """
        if not self._members and not source.is_finished():
            num_workers = num_sweep_workers(self._plan.job.runtime)
            self._members += [_Member(self._plan, number) for number in range(num_workers)]
        while True:
            self._hand_out(source)
            # No filler at a source's end: the next source has priority. None after a loss: it may need all the memory.
            if filler is not None and len(self._members) > 1 and not source.is_finished() and not self._filler_lost:
                self._hand_out(filler)
            if not any(member.source is source for member in self._members) and source.is_finished():
                return
            self._listen(source)

    def close(self) -> None:
        """End all processes: idle ones end when their pipe is closed, busy ones are terminated."""
        for member in self._members:
            if member.work is not None or not member.ready:
                member.process.terminate()
            member.connection.close()
        for member in self._members:
            member.end()

    def _hand_out(self, source: Source) -> None:
        for member in self._members:
            if member.ready and member.work is None and (work := source.take()) is not None:
                member.give(work, source)

    def _listen(self, phase: Source) -> None:
        handles = [handle for member in self._members for handle in (member.connection, member.process.sentinel)]
        ready = wait(handles, timeout=_LOOK_AGAIN_S)
        for member in list(self._members):
            # Messages that a dead worker sent before it died are handled first.
            if member.connection in ready or member.process.sentinel in ready:
                self._hear(member, phase)

    def _hear(self, member: _Member, phase: Source) -> None:
        match member.answer():
            case None:
                if not member.process.is_alive():
                    self._bury(member, phase)
            case ("ready", _):
                member.ready = True
            case ("done", result):
                work, source = member.taken_back()
                assert work is not None and source is not None
                self._deaths = 0
                source.done(work, result)
                note_done(self._plan.job.run_folder)
            case (_, error):
                raise error

    def _bury(self, member: _Member, phase: Source) -> None:
        member.connection.close()
        work, source = member.taken_back()
        if work is not None and source is not None:
            source.lost(work)
            self._filler_lost |= source is not phase
        self._deaths += 1
        code = member.process.exitcode or 0
        how = f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with status {code}"
        if self._deaths >= MAX_DEATHS:
            raise MachineError(
                f"{self._deaths} workers of the sweep died one after the other without finishing anything (the last "
                f"{how}), most likely for lack of memory. What had finished is kept: run the stage again to "
                "resume, with fewer workers if need be (runtime.sweep_workers)."
            )
        warn(f"worker {member.number} of the sweep {how}; it is started again")
        self._members[member.number] = _Member(self._plan, member.number)


class _Member:
    """One worker process, the pipe to it, and the unit of work that it has."""

    def __init__(self, plan: PlannedSweep, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.number = number
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(plan, number, theirs), name=f"sweep-{number}", daemon=True)
        self.process.start()
        theirs.close()  # otherwise the pipe would stay open after the process has ended
        self.ready = False
        """Whether the process has said that it can take work."""
        self.work: Work | None = None
        self.source: Source | None = None
        """Source of the current unit of work."""

    def give(self, work: Work, source: Source) -> None:
        """Send a unit of work; if the process has just died, its death is noticed later, together with this unit."""
        self.work, self.source = work, source
        with suppress(OSError):
            self.connection.send(work)

    def taken_back(self) -> tuple[Work | None, Source | None]:
        """Clear the current unit of work, and return it and its source."""
        had = self.work, self.source
        self.work = self.source = None
        return had

    def answer(self) -> tuple[str, Any] | None:
        """Return the next message of the process; None if there is none."""
        try:
            return self.connection.recv() if self.connection.poll() else None
        except (EOFError, OSError):
            self.end()
            return None

    def end(self) -> None:
        """Wait until the process has ended; kill it if it does not end."""
        self.process.join(_LAST_WORDS_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@contextmanager
def started_workers(plan: PlannedSweep, *, in_process: bool) -> Iterator[Workers]:
    """Yield the workers of a sweep, and end them when the block ends.

    Args:
        plan: The planned sweep.
        in_process: Do all work in this process, regardless of `runtime.sweep_workers`.
    """
    if in_process:
        yield ThisProcess(plan)
        return
    with closing(WorkerProcesses(plan)) as workers:
        yield workers


def _serve(plan: PlannedSweep, number: int, connection: Connection) -> None:
    """Main loop of a worker process."""
    end_with_parent()
    with uncollected_imports():  # what the first training would import; the supervisor has no use for it
        import bertline.finetuning.module
        import bertline.training.trainer  # noqa: F401
    try:
        bench = Bench(plan, worker=number)
        connection.send(("ready", None))
        while True:
            work = connection.recv()
            connection.send(("done", work.function(bench, work.argument)))
    except EOFError:
        return  # dismissed
    except BertlineError as error:
        connection.send(("failed", error))
    except Exception as error:
        traceback.print_exc()
        # Not every exception can be pickled, so only its message is sent; the traceback is in the log.
        connection.send(("failed", RuntimeError(f"{type(error).__name__}: {error}")))
