"""Submit the job of a run folder, or attach to the one that is there already, and follow it to its end.

The truth is the run's status file, then Slurm's queue: a cluster without accounting forgets a job minutes after its
end. The note of the job, `job.json`, is written in two steps, before and after sbatch. A client that was killed in
between has left the name of the job, by which the next one finds it; sbatch itself holds the lock of the submission
until it has answered. Should two jobs of a name be there in spite of that, Slurm runs one after the other
(`--dependency=singleton`), and the second finds the work done.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bertline.foundation.errors import BertlineError
from bertline.foundation.files import lock_file, read_json, write_atomically, write_json
from bertline.foundation.progress import say, warn
from bertline.orchestration.log_view import LogView
from bertline.orchestration.ownership import is_locked
from bertline.orchestration.slurm import commands
from bertline.orchestration.slurm.script import SCRIPT_NAME, job_script, own_flags
from bertline.orchestration.status import Status, mark_watched, read_status, write_status
from bertline.orchestration.stopping import Detached, Stopped, named
from bertline.training.config import RuntimeConfig
from bertline.training.launchers import SlurmLauncherConfig

_NOTE = "job.json"
_LOOK_S = 0.5
_ASK_QUEUE_S = 3.0
# A job that has just left the queue may have written its status a moment ago, on another machine.
_FILE_SYSTEM_LAG_S = 15.0
_LAST_LINES = 20
_WAITS_FOR_NODES = ("ReqNodeNotAvail", "Nodes required for job are DOWN")
# A job that waits for these does not start by itself.
_WAITS_FOR_EVER = (
    *_WAITS_FOR_NODES,
    "BadConstraints",
    "JobHeld",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "PartitionDown",
    "PartitionInactive",
    "InvalidAccount",
    "InvalidQOS",
    "DependencyNeverSatisfied",
    "AccountNotAllowed",
    "QOSNotAllowed",
    "AssocMax",
    "QOSMax",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """What a client knows about the job of a run folder."""

    name: str
    """Name of the job: stage, fingerprint and a random part, so that no other folder's job has it."""
    job_id: str | None = None
    """None: sbatch has not answered yet."""
    num_nodes: int | None = None
    """Nodes that it was submitted for; None: unknown, or the work has no ranks."""
    num_devices: int | None = None
    """Devices of each node that it was submitted for."""
    reported: bool = True
    """Whether a client has shown how the job ended, if it failed."""


def run_job(folder: Path, function: str, runtime: RuntimeConfig, launcher: SlurmLauncherConfig, *, ranks: bool) -> None:
    """Submit or attach to the job of a run folder, and return when its status says how it ended.

    Args:
        folder: A run folder with a frozen `config.yaml`, on a file system that the nodes share.
        function: Import path of the work.
        runtime: Devices and nodes.
        launcher: What to ask sbatch for.
        ranks: Whether the work has a rank for each device.

    Raises:
        BertlineError: The job ended before its work, or an earlier one failed that no client has reported.
        Detached: A signal ended the watching; the job continues.
        MachineError: There is no Slurm, or it refused the job.
    """
    commands.require_commands()
    try:
        _Job(folder, _submitted(folder, function, runtime, launcher, ranks=ranks)).follow()
    except KeyboardInterrupt as error:
        number = error.number if isinstance(error, Stopped) else signal.SIGINT
        raise Detached(f"by {named(number)}; {_continues(_read(folder))}", number) from None


def _continues(note: Note | None) -> str:
    again = "Run the same command again to see it"
    if note is None or note.job_id is None:
        return f"what was submitted, or works already, continues without this command. {again}"
    return f"job {note.job_id} continues without this command. {again}, or `scancel {note.job_id}` to end it"


def _submitted(
    folder: Path, function: str, runtime: RuntimeConfig, launcher: SlurmLauncherConfig, *, ranks: bool
) -> Note:
    """Return the note of the job in the queue, which is submitted if there is none."""
    with _submitting(folder) as held:
        note = _first_note(folder)
        job = _known_to_slurm(note)
        status, told = read_status(folder), False
        while job is not None and (job.state == "COMPLETING" or (status.state == "failed" and note.reported)):
            if not told:
                say(f"job {job.job_id} is ending ({job.state.lower()}); waiting until it has")
                told = True
            time.sleep(_ASK_QUEUE_S)
            job, status = _known_to_slurm(note), read_status(folder)
        if job is not None:
            note = dataclasses.replace(note, job_id=job.job_id, reported=False)
            _write(folder, note)
            say(f"attached to job {job.job_id} ({job.state.lower()}); Ctrl-C leaves it running (log: {folder / 'log'})")
            _tell_of_another_size(note, runtime)
            return note
        if is_locked(folder):
            say(f"attached to the process that works at {folder} already; Ctrl-C leaves it running")
            return note
        if status.inputs_changed or (status.state == "failed" and not note.reported):
            _write(folder, dataclasses.replace(note, reported=True))
            raise BertlineError(_failed(folder, note, status.message))
        before = ""
        if note.job_id is not None and status.state != "failed" and (end := commands.end_of(note.job_id)):
            before = f" in place of job {note.job_id}, which ended before its work was done ({end})"
        script = folder / SCRIPT_NAME
        write_atomically(script, job_script(folder, function, runtime, launcher, name=note.name, ranks=ranks))
        # What a worker wrote before says nothing about this job; `inputs_changed` was looked at above.
        write_status(folder, Status(state="new"))
        size = (runtime.num_nodes, runtime.num_devices) if ranks else (None, None)
        note = dataclasses.replace(note, job_id=None, reported=False, num_nodes=size[0], num_devices=size[1])
        _write(folder, note)
        flags = own_flags(folder, launcher, name=note.name, ranks=ranks, quoted=False)
        job_id = commands.submit(script, flags, note.name, held=held)
        note = dataclasses.replace(note, job_id=job_id)
        _write(folder, note)
        say(f"submitted job {note.job_id}{before}; Ctrl-C leaves it running (log: {folder / 'log'})")
        return note


def _tell_of_another_size(note: Note, runtime: RuntimeConfig) -> None:
    """Say that a job has other nodes or devices than this command asks for: attaching does not change them."""
    asked = (runtime.num_nodes, runtime.num_devices)
    if note.num_nodes is None or (note.num_nodes, note.num_devices) == asked:
        return
    warn(
        f"job {note.job_id} was submitted for {note.num_nodes} node(s) of {note.num_devices} device(s), this command "
        f"asks for {asked[0]} of {asked[1]} (runtime.num_nodes, runtime.num_devices): the job continues as it is. For "
        f"the other size: `scancel {note.job_id}` and the same command again, which resumes"
    )


def _known_to_slurm(note: Note) -> commands.Job | None:
    """Return the job in the queue; while the controller does not answer, nothing may be submitted, so it is awaited."""
    told = False
    while True:
        try:
            return commands.job_named(note.name)
        except commands.UnansweredError as error:
            if not told:
                warn(f"Slurm's controller does not answer ({error}); waiting for it")
                told = True
            time.sleep(_ASK_QUEUE_S)


class _Job:
    """A job that is watched."""

    def __init__(self, folder: Path, note: Note) -> None:
        self.note = note
        self._folder = folder
        self._next_look = 0.0
        self._gone_since: float | None = None
        self._told = ""
        self._is_silent = False

    def follow(self) -> None:
        """Show the job's log until its status is final.

        Raises:
            BertlineError: The job failed, or left the queue without a final status.
        """
        with closing(LogView(self._folder / "log")) as view:
            while not self._has_ended():
                view.show()
                time.sleep(_LOOK_S)
        status = read_status(self._folder)
        _write(self._folder, dataclasses.replace(self.note, reported=True))
        if status.state == "failed":
            job = "" if self.note.job_id is None else f"job {self.note.job_id}, "
            raise BertlineError(f"{status.message}\n({job}log: {self._folder / 'log'})")
        if status.state not in ("finished", "stopped"):
            raise BertlineError(self._without_an_end())
        if status.state == "stopped" and self.note.job_id is not None and (end := commands.end_of(self.note.job_id)):
            say(f"job {self.note.job_id} has left the queue ({end})")  # perhaps somebody else cancelled it

    def _has_ended(self) -> bool:
        state = read_status(self._folder).state
        if state in ("finished", "failed"):
            return True
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + _ASK_QUEUE_S
        mark_watched(self._folder)
        try:
            job = commands.job_named(self.note.name)
        except commands.UnansweredError as error:
            if not self._is_silent:
                warn(f"Slurm's controller does not answer ({error}); the job is watched through its files")
            self._is_silent = True
            return False
        self._is_silent = False
        if job is not None:
            self._gone_since = None
            self._tell(job)
            return False
        self._gone_since = self._gone_since or now
        waits_s = 2 * _ASK_QUEUE_S if state == "stopped" else _FILE_SYSTEM_LAG_S
        return now - self._gone_since >= waits_s and not is_locked(self._folder)

    def _tell(self, job: commands.Job) -> None:
        """Say why the job waits, whenever that changes."""
        waits = job.state == "PENDING" and job.reason != "None"
        text = f"job {job.job_id} waits in the queue: {job.reason}" if waits else ""
        if text and text != self._told:
            say(text)
            if job.reason.startswith(_WAITS_FOR_EVER):
                down = commands.nodes_down() if job.reason.startswith(_WAITS_FOR_NODES) else ""
                warn(
                    f"{job.reason} may never pass by itself{f' ({down})' if down else ''}: `scontrol show job "
                    f"{job.job_id}` says more. To change what is asked for: `scancel {job.job_id}`, another "
                    "runtime.launcher or runtime.num_nodes, and the same command again"
                )
        self._told = text

    def _without_an_end(self) -> str:
        who = f"the process that worked at {self._folder} ended before its work was done"
        if self.note.job_id is not None:
            end = commands.end_of(self.note.job_id) or "Slurm has forgotten how"
            who = f"job {self.note.job_id} ended before its work was done ({end})"
        return f"{who}.\n{_last_lines(self._folder)}Run the same command again: the work is submitted again and resumes"


def _failed(folder: Path, note: Note, message: str) -> str:
    return (
        f"job {note.job_id} failed while nobody watched: {message}\nThe last lines of {folder / 'log'}:\n"
        f"{_last_lines(folder)}Run the same command again to submit it again: it resumes from its checkpoints"
    )


def _last_lines(folder: Path) -> str:
    """Return the end of the newest log: each task of an array has one of its own."""
    logs = sorted(folder.glob("log*"), key=lambda path: path.stat().st_mtime)
    lines = logs[-1].read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:] if logs else []
    return "".join(f"  | {line}\n" for line in lines)


@contextmanager
def _submitting(folder: Path) -> Iterator[int]:
    """Hold the lock of the submission, waiting for another client; yields the descriptor that sbatch holds, too."""
    with (folder / "submit.lock").open("w") as handle:
        lock_file(handle, wait=True)  # without locks, Slurm still runs jobs of one name one after the other
        os.set_inheritable(handle.fileno(), True)
        yield handle.fileno()


def _first_note(folder: Path) -> Note:
    """Return the note, whose name is chosen once, also by clients whose locks do not reach one another."""
    if (found := _read(folder)) is not None:
        return found
    token = secrets.token_hex(3)
    temporary = folder / f".{_NOTE}.{token}"
    write_json(temporary, dataclasses.asdict(Note(name=f"bertline-{folder.parent.name}-{folder.name}-{token}")))
    try:
        os.link(temporary, folder / _NOTE)  # fails if there is one
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        shutil.copyfile(temporary, folder / _NOTE)
    temporary.unlink()
    return Note(**read_json(folder / _NOTE))


def _read(folder: Path) -> Note | None:
    path = folder / _NOTE
    return Note(**read_json(path)) if path.exists() else None


def _write(folder: Path, note: Note) -> None:
    write_json(folder / _NOTE, dataclasses.asdict(note))
