"""Sends run folders to MLflow: whatever the files have and the server lacks, each value once.

The files of a run folder are the record, and there is no queue: they are compared with the server.
A folder may therefore be sent any number of times: every few seconds while a stage works
(`sending`), when it ends, and later by a command (`send_all`). Imports MLflow, which takes about 2
s.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from bertline.foundation.errors import BertlineError
from bertline.foundation.files import complete_lines, lock_file, read_json, sha256_of_json, sha256_of_path
from bertline.foundation.progress import say, warn
from bertline.foundation.system_load import PATTERN
from bertline.tracking.config import first_line, is_local, masked
from bertline.tracking.store import (
    Point,
    RunStatus,
    Store,
    StoredRun,
    refused,
    upload_config,
    upload_path,
    upload_table,
)
from bertline.tracking.tracked_runs import (
    NOTE_TAG,
    PARENT_TAG,
    PIPELINE_KEY_TAG,
    STAGE_KEY_TAG,
    STAGE_TAG,
    TRIAL_TAG,
    Attachment,
    ShownTable,
    TrackedRun,
    TrackedRuns,
    read_tracked_runs,
)

_EVERY_S, _AFTER_ERROR_S = 3.0, 15.0
_LONGEST_END_S = 600.0
"""How long the end of a stage waits for what is still to be sent. A request that is not answered
ends after 10 s."""
_STATUS: dict[str, RunStatus] = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
# A pruned trial was stopped on purpose, so it did not fail.
_STATUS_OF_TRIAL: dict[str, RunStatus] = {"COMPLETE": "FINISHED", "PRUNED": "KILLED", "FAIL": "FAILED"}
_OPENED_TAG = "bertline.opened_s"
"""On the run of a pipeline: when its last stage was opened. That stage's status is the pipeline's."""
# Configuration keys whose values are the user's sentences, not settings.
_TEXT_KEYS = ("mask_predictions.sentences",)


@contextmanager
def sending(folder: Path) -> Iterator[None]:
    """Send a run folder every few seconds while the block runs, and once more after it.

    No error of tracking stops the block. What is not sent stays in the folder, which a warning
    says.
    """
    sender, ended = _Sender(folder), threading.Event()
    thread = threading.Thread(target=_send_until, args=(ended, sender), name="tracking", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_LONGEST_END_S)
        if thread.is_alive():  # a daemon: it ends with the process, whatever it waits for
            sender.problem = sender.problem or "it does not answer"
        if sender.problem:
            warn(
                f"{sender.target} did not take all records of this stage ({sender.problem}). They are in {folder}; to "
                "send them later: bertline send"
            )


def send_all(folders: Iterable[Path]) -> list[Path]:
    """Send what the server lacks of run folders, and return those of which it still lacks
    something.

    A second process, or a second call, sends nothing twice; a folder that another process is
    sending is left to it. What the server does not take is a warning, and one that cannot be
    reached is tried once.
    """
    left: list[Path] = []
    silent: set[str] = set()
    for folder in folders:
        with closing(_Sender(folder)) as sender:
            try:
                is_sent = read_tracked_runs(folder).tracking.uri not in silent and sender.send()
            except Exception as error:
                warn(f"{folder} was not sent: {first_line(error)}")
                is_sent = False
                if not isinstance(error, BertlineError | ValueError | TypeError | LookupError):  # of this folder alone
                    silent.add(sender.uri)
        left += [] if is_sent else [folder]
    return left


def without_text(mapping: Mapping[str, Any], key: str = "") -> dict[str, Any]:
    """Return a nested configuration without the values that are the user's sentences (see
    `tracking.log_text`).

    >>> without_text({"mask_predictions": {"sentences": ["Mine, [MASK]."], "every_steps": 500}})
    {'mask_predictions': {'every_steps': 500}}
    """
    shown = {name: value for name, value in mapping.items() if not f"{key}.{name}".endswith(_TEXT_KEYS)}
    return {name: without_text(value, name) if isinstance(value, Mapping) else value for name, value in shown.items()}


def _send_until(ended: threading.Event, sender: _Sender) -> None:
    """Send a run folder until the event is set, and once more after that."""
    pause_s, is_last = 0.0, False
    with closing(sender):
        while not is_last:
            is_last = ended.wait(pause_s)
            try:
                sender.send()
                sender.problem = None
                pause_s = _EVERY_S
            except Exception as error:
                if sender.problem is None:
                    say(f"{sender.target} takes no records now ({first_line(error)}). The work continues.")
                sender.problem = first_line(error)
                pause_s = _AFTER_ERROR_S


class _Sender:
    """Compares a run folder with the server; what it knows of the server it forgets after an error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problem: str | None = None
        """Why the server did not take what was sent last."""
        self.uri = ""
        self._lock: TextIO | None = None
        self._notices: set[str] = set()
        self._refused: set[str] = set()
        self._forget()

    def _forget(self) -> None:
        self._store: Store | None = None
        self._pipeline: StoredRun | None = None
        self._stage: StoredRun | None = None
        self._trials: dict[str, StoredRun] | None = None
        self._curves: set[str] = set()
        self._positions: dict[Path, tuple[int, int]] = {}
        """Inode of each file of rows, and the position up to which the server has it."""

    @property
    def target(self) -> str:
        """Address of the server, for messages."""
        return masked(self.uri) or "the tracking server"

    def close(self) -> None:
        """Leave the folder to other processes."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def send(self) -> bool:
        """Send what the server lacks, and return whether it has everything now.

        Raises:
            Exception: The server cannot be reached, or refuses the run itself.
        """
        runs = read_tracked_runs(self.folder)
        self.uri = runs.tracking.uri
        if self._lock is None:
            lock = (self.folder / ".sending").open("w")
            if lock_file(lock) is False:
                lock.close()
                self._notice(f"{self.folder} is being sent by another process")
                return False
            self._lock = lock
        try:
            return self._send(runs)
        except BaseException:
            self._forget()
            raise

    def _send(self, runs: TrackedRuns) -> bool:
        status_file = self.folder / "status.json"
        ended = read_json(status_file) if status_file.exists() else {}
        status = _STATUS.get(ended.get("state", ""), "RUNNING")
        store = self._store = self._store or Store(runs.tracking.uri, runs.tracking.experiment_name)
        if status != "RUNNING":
            self._pipeline = None  # another stage may have written to it
        pipeline, stage = self._open_runs(store, runs)
        newest = float(pipeline.tags.get(_OPENED_TAG, 0)) <= runs.opened_s
        if newest:
            pipeline.set_tags({_OPENED_TAG: str(runs.opened_s)})
        for path in (self.folder / "metrics.jsonl", *sorted(self.folder.glob(PATTERN))):
            self._attempt(path.name, stage.log_points, self._points(path))
        self._attempt("events.jsonl", self._send_trials, store, stage.id)
        own_text = runs.tracking.log_text or is_local(runs.tracking.uri)
        for run, content in ((pipeline, runs.pipeline), (stage, runs.stage)):
            self._send_settings(run, content, own_text=own_text)
            # A figure with the name of a curve would add a point to the curve.
            figures = {f"final/{key}" if key in self._curves else key: value for key, value in content.metrics.items()}
            self._attempt("figures", run.log_figures, figures, ended.get("ended_s") or time.time())
            self._send_files(run, content, own_text=own_text, finished=status == "FINISHED")
        if newest:
            pipeline.set_status(status, ended_s=ended.get("ended_s"))
        stage.set_status(status, ended_s=ended.get("ended_s"))
        return not self._refused

    def _open_runs(self, store: Store, runs: TrackedRuns) -> tuple[StoredRun, StoredRun]:
        """Find or create the runs of the pipeline and of the stage.

        A stage that an earlier pipeline did not finish is continued, below the pipeline of `runs`.
        """
        if self._pipeline is None:
            self._pipeline = pipeline_run(store, runs)
        if self._stage is None:
            identity = {STAGE_TAG: runs.stage.name, STAGE_KEY_TAG: runs.stage.key}
            known = store.find_runs(identity)
            own = [run for run in known if run.data.tags.get(PARENT_TAG) == self._pipeline.id]
            usable = own or [run for run in known if run.info.status != "FINISHED"]
            if usable:
                self._stage = StoredRun(store.client, usable[0])
                self._stage.set_tags({PARENT_TAG: self._pipeline.id})
            else:
                identity[PARENT_TAG] = self._pipeline.id
                self._stage = store.find_or_create_run(identity, runs.stage.name, start_s=runs.opened_s)
        return self._pipeline, self._stage

    def _send_settings(self, run: StoredRun, content: TrackedRun, *, own_text: bool) -> None:
        self._attempt("tags", run.set_tags, content.tags)
        self._attempt("parameters", run.log_params, content.params if own_text else without_text(content.params))
        self._attempt("inputs", run.log_inputs, content.inputs)
        if content.config is not None:
            config = content.config if own_text else without_text(content.config)
            self._attempt(
                "config.yaml", run.attach, "config.yaml", sha256_of_json(config), partial(upload_config, config)
            )

    def _send_files(self, run: StoredRun, content: TrackedRun, *, own_text: bool, finished: bool) -> None:
        for one in content.files:
            path = self.folder / one.path
            if not (path.exists() and (finished or (isinstance(one, Attachment) and one.while_working))):
                continue
            if not own_text and (isinstance(one, ShownTable) or one.contains_text):
                self._notice(f"{path} stays on this machine: it contains your text, and tracking.log_text is false.")
                continue
            self._attempt(str(path), self._attach, run, one, path)

    def _attach(self, run: StoredRun, one: Attachment | ShownTable, path: Path) -> None:
        with suppress(FileNotFoundError):  # it is being replaced, and sent the next time
            sha256 = sha256_of_path(path)
            if one.sha256 not in (None, sha256):
                self._notice(f"{path} was overwritten by another run and is left out")
                return
            if isinstance(one, ShownTable):
                run.attach(f"{one.name}.json", sha256, partial(upload_table, path, one))
            else:
                run.attach(path.name, sha256, partial(upload_path, path))

    def _attempt(self, part: str, function: Callable[..., None], *arguments: Any) -> None:
        """Send a part of the run; one that the server refuses is warned of once and does not stop
        the others."""
        if part in self._refused:
            return
        try:
            function(*arguments)
        except Exception as error:
            if not refused(error):
                raise
            warn(f"{self.target} refused {part} of {self.folder}: {first_line(error)}")
            self._refused.add(part)

    def _rows(self, path: Path) -> Iterator[dict[str, Any]]:
        """Yield the complete lines of a growing file that the server does not have yet, as far as
        is known."""
        with suppress(FileNotFoundError):
            status = path.stat()
            inode, position = self._positions.get(path, (0, 0))
            if inode != status.st_ino or status.st_size < position:
                position = 0  # rewritten after a resume
            for line, after in complete_lines(path, position):
                yield json.loads(line)
                position = after
            self._positions[path] = (status.st_ino, position)

    def _points(self, path: Path) -> Iterator[Point]:
        for row in self._rows(path):
            self._curves.update(row["metrics"])
            for key, value in row["metrics"].items():
                yield key, float(value), float(row["time_s"]), int(row["step"])

    def _send_trials(self, store: Store, parent: str) -> None:
        """Create a run below the stage's for each line of events.jsonl: trials and repetitions of a
        sweep."""
        for event in self._rows(self.folder / "events.jsonl"):
            if self._trials is None:
                runs = [StoredRun(store.client, run) for run in store.find_runs({PARENT_TAG: parent})]
                self._trials = {run.tags[TRIAL_TAG]: run for run in runs if TRIAL_TAG in run.tags}
            identity = f"{event['arm']}/{event['kind']}/{event['number']}"
            trial = self._trials.get(identity)
            if trial is not None and trial.status != "RUNNING":
                continue
            # The event tells how long the trial took, not when it ended.
            ended_s = time.time()
            if trial is None:
                tags = {PARENT_TAG: parent, TRIAL_TAG: identity, "optuna.state": event["state"]}
                tags |= {f"bertline.{key}": event[key] for key in ("arm", "kind")}
                if event.get("reason"):
                    tags[NOTE_TAG] = event["reason"]
                name = f"{event['arm'].replace('_', ' ')} · {event['kind'].replace('_', ' ')} {event['number']}"
                trial = store.create_run(name, tags, start_s=ended_s - float(event.get("time_s") or 0.0))
                self._trials[identity] = trial
            # Steps are integers: percent of the schedule.
            curve = [(round(100 * share), float(score)) for share, score in event.get("curve") or []]
            last = curve[-1][0] if curve else 0
            trial.log_params(event["params"])
            trial.log_points(("dev/score_while_training", score, ended_s, step) for step, score in curve)
            trial.log_points((key, float(value), ended_s, last) for key, value in (event.get("metrics") or {}).items())
            trial.set_status(_STATUS_OF_TRIAL[event["state"]])

    def _notice(self, message: str) -> None:
        if message not in self._notices:
            self._notices.add(message)
            say(message)


def pipeline_run(store: Store, runs: TrackedRuns) -> StoredRun:
    """Return the run of a pipeline, which is created if it does not exist."""
    key, name = runs.pipeline.key, runs.pipeline.name
    return store.find_or_create_run({PIPELINE_KEY_TAG: key}, f"{name} {key[:10]}", start_s=runs.opened_s)
