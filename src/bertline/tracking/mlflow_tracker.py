"""Tracking with MLflow: all calls are queued in an outbox, so that stages do not wait for a server."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from bertline.foundation.errors import BertlineError
from bertline.foundation.files import size_of_path
from bertline.foundation.metrics_log import read_metrics
from bertline.foundation.progress import say, warn
from bertline.tracking.config import TrackingConfig, database_file, is_local, masked
from bertline.tracking.feeds import ArtifactFeed, Feed, LoadFeed, MetricsFeed, TrialsFeed
from bertline.tracking.outbox import AtOnce, LeftError, Outbox, RefusedError
from bertline.tracking.registry import register_folder
from bertline.tracking.store import PARENT_TAG, Store, dataset_inputs, log_rows, refusals
from bertline.tracking.tracker import PipelineOpening, Registration, Run, StageOpening, Status, TrackedRun, Tracker
from bertline.tracking.unsent import Session, claimed, kept_sessions, marked, place_of, unmarked
from bertline.tracking.values import flatten, without_text

PIPELINE_KEY_TAG = "bertline.pipeline_key"
SERVER_PATIENCE_S = 10.0
# A local database is always reachable, but may be locked while another process writes.
_LOCAL_PATIENCE_S = 60.0
STAGE_TAG = "bertline.stage"
KEY_TAG = "bertline.stage_key"


class _MlflowRun(Run):
    """MLflow implementation of `tracker.Run`."""

    _tracker: MlflowTracker
    _number: int | None = None
    """Index of the stage in the session; None for the run of the pipeline."""
    _followed: Sequence[Path] = ()

    @property
    def known_id(self) -> str:
        """The id of the run.

        Raises:
            RefusedError: It could not be opened, and nothing can be recorded in it.
        """
        if self.run_id is None:
            raise RefusedError("the run could not be opened")
        return self.run_id

    def log_metrics(self, metrics: Mapping[str, float]) -> None:
        self.note("log_metrics", metrics=metrics)
        # A metric with the name of a curve would add a point to the curve.
        curves = {key for path in self._followed for row in read_metrics(path) for key in row.metrics}
        named = {f"final/{key}" if key in curves else key: float(value) for key, value in metrics.items()}
        store, at_s = self._tracker.store, time.time()

        def send() -> None:
            # MLflow shows the value of the last step, so a changed value gets a new step.
            has = store.get_run(self.known_id).data.metrics
            points = []
            for key, value in named.items():
                if has.get(key) != value:
                    step = max(store.known_steps(self.known_id, key)) + 1 if key in has else 0
                    points.append((key, value, at_s, step))
            store.log_points(self.known_id, points)

        self._tracker.put(send)

    def log_artifact(self, path: Path, *, contains_text: bool) -> None:
        self.note("log_artifact", path=marked(path), contains_text=contains_text)
        client = self._tracker.store.client

        def send() -> None:
            if path.is_dir():
                client.log_artifacts(self.known_id, str(path), path.name)
            else:
                client.log_artifact(self.known_id, str(path))

        if self._tracker.may_send(path, contains_text=contains_text):
            self._tracker.put(send, num_bytes=size_of_path(path) if path.exists() else 0)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        self.note("set_tags", tags=tags)
        self._tracker.put(lambda: self._tracker.store.set_tags(self.known_id, tags))

    def note(self, call: str, **arguments: Any) -> None:
        """Keep a call for the case that the server does not take it."""
        self._tracker.session.note(call, self._number, **arguments)


class MlflowTracker(_MlflowRun, Tracker):
    """MLflow implementation of `tracker.Tracker`."""

    def __init__(
        self, config: TrackingConfig, outbox: Outbox | None = None, **opening: Unpack[PipelineOpening]
    ) -> None:
        self._tracker = self
        self._config = config
        self.pipeline_key = opening["pipeline_key"]
        self.session = Session(opening)
        self._num_stages = 0
        self._sends_text = config.log_text or is_local(config.uri)
        self.store = Store(config.uri, config.experiment_name)
        patience_s = _LOCAL_PATIENCE_S if database_file(config.uri) else SERVER_PATIENCE_S
        self.outbox = outbox or Outbox(config.uri, patience_s=patience_s)
        name = f"{opening.get('name', 'pipeline')} {self.pipeline_key[:10]}"
        self.put(lambda: self._open_pipeline_run(name, opening["tags"]), essential=True)
        self.put(lambda: self.store.log_params(self.known_id, self.flat(opening["params"])))
        if outbox is None:
            self.put(self._send_kept)

    def stage(self, name: str, **opening: Unpack[StageOpening]) -> MlflowTrackedRun:
        run = MlflowTrackedRun(self, self._num_stages)
        self._num_stages += 1
        self.note("begin_stage", name=name, **opening)
        self.put(lambda: run.open(name, opening["key"], opening["tags"]), essential=True)
        self.put(lambda: self.store.log_params(run.known_id, self.flat(opening["params"])))
        self.put(lambda: self.store.client.log_inputs(run.known_id, dataset_inputs(opening["inputs"])))
        return run

    @property
    def records_load(self) -> bool:
        """Whether to record the load of the machines."""
        return self._config.system_metrics

    def log_config(self, config: Mapping[str, Any]) -> None:
        self.note("log_config", config=config)
        sent = config if self._sends_text else without_text(config)
        self.put(lambda: self.store.client.log_dict(self.known_id, dict(sent), "config.yaml"))

    def register(self, name: str, folder: Path, **asked: Unpack[Registration]) -> str | None:
        problem = f"{self._config.uri} cannot be reached."
        if self.outbox.flush() and self.run_id is not None:
            try:
                return register_folder(self.store, self.run_id, name, folder, **asked)
            except Exception as error:
                problem = str(error)
        warn(f"{name} was not registered: {masked(problem)}")
        return None

    def close(self, status: Status = "FINISHED") -> None:
        self.note("close", status=status)
        if status != "RUNNING":
            self.put(lambda: self.store.set_status(self.known_id, status))
        if not self.outbox.close():
            try:
                self.session.keep(place_of(self._config.uri, self._config.experiment_name))
            except BertlineError as error:
                warn(f"the records could not be kept for later: {error}")

    def put(self, task: Callable[[], None], *, essential: bool = False, num_bytes: int = 0) -> None:
        """Queue a call to MLflow."""

        def checked() -> None:
            with refusals():
                task()

        self.outbox.put(checked, essential=essential, num_bytes=num_bytes)

    def flat(self, params: Mapping[str, Any]) -> dict[str, str]:
        """Flatten parameters for MLflow, without the user's sentences if these must not leave this machine."""
        return flatten(params if self._sends_text else without_text(params))

    def may_send(self, path: Path, *, contains_text: bool) -> bool:
        """Return whether a file may be sent to the tracking store; log a message if not."""
        allowed = self._sends_text or not contains_text
        if not allowed:
            say(f"{path} stays on this machine: it contains your text, and tracking.log_text is false.")
        return allowed

    def _send_kept(self) -> None:
        """Send the sessions that earlier stages could not send.

        Raises:
            LeftError: The server could not take a session.
        """
        send_kept(self._config, running_pipeline=self.pipeline_key)

    def _open_pipeline_run(self, name: str, tags: Mapping[str, str]) -> None:
        run_id = self.store.find_or_create_run({PIPELINE_KEY_TAG: self.pipeline_key}, name, {})
        self.store.set_status(run_id, "RUNNING")
        self.store.set_tags(run_id, tags)
        self.run_id = run_id


class MlflowTrackedRun(_MlflowRun, TrackedRun):
    """MLflow implementation of `tracker.TrackedRun`."""

    def __init__(self, tracker: MlflowTracker, number: int) -> None:
        self._tracker = tracker
        self._number = number
        self._feeds: list[Feed] = []
        self._followed: list[Path] = []
        self._followed_artifacts: list[tuple[Path, bool]] = []

    def open(self, name: str, key: str, tags: Mapping[str, str]) -> None:
        """Continue the run of this stage in this pipeline run, or adopt an unfinished one of an earlier pipeline
        run."""
        store, parent = self._tracker.store, self._tracker.known_id
        identity = {STAGE_TAG: name, KEY_TAG: key}
        candidates = store.find_runs(identity)
        mine = [run for run in candidates if run.data.tags.get(PARENT_TAG) == parent]
        left = [run for run in candidates if run.info.status != "FINISHED"]
        if mine or left:
            run_id = (mine or left)[0].info.run_id
            store.set_tags(run_id, {PARENT_TAG: parent, **tags})
        else:
            run_id = store.find_or_create_run({**identity, PARENT_TAG: parent}, name, tags)
        store.set_status(run_id, "RUNNING")
        self.run_id = run_id

    def follow(self, path: Path) -> None:
        self.note("follow", path=path)
        self._followed.append(path)
        self._follow(MetricsFeed, path)

    def follow_events(self, path: Path) -> None:
        self.note("follow_events", path=path)
        self._follow(TrialsFeed, path)

    def follow_load(self, path: Path) -> None:
        if self._tracker.records_load:
            self.note("follow_load", path=path)
            self._follow(LoadFeed, path)

    def follow_artifact(self, path: Path, *, contains_text: bool) -> None:
        self._followed_artifacts.append((path, contains_text))
        if self._tracker.may_send(path, contains_text=contains_text):
            self._follow(ArtifactFeed, path)

    def log_table(
        self, path: Path, name: str, *, num_rows: int = 1000, wrong_only: bool = False, contains_text: bool
    ) -> None:
        rows: dict[str, Any] = {"name": name, "num_rows": num_rows, "wrong_only": wrong_only}
        self.note("log_table", path=marked(path), **rows, contains_text=contains_text)
        if path.exists() and self._tracker.may_send(path, contains_text=contains_text):
            self._tracker.put(lambda: log_rows(self._tracker.store.client, self.known_id, path, **rows))

    def close(self, status: Status = "FINISHED") -> None:
        """Send the rest of every followed file, set the status unless work continues (RUNNING), and wait for both."""
        for path, contains_text in self._followed_artifacts:
            self.note("log_artifact", path=marked(path), contains_text=contains_text)
        self.note("end", status=status)
        self._tracker.put(self._finish_feeds)
        if status != "RUNNING":
            self._tracker.put(lambda: self._tracker.store.set_status(self.known_id, status))
        self._tracker.outbox.flush()

    def _follow(self, kind: type[Feed], path: Path) -> None:
        def start() -> None:
            feed = kind(self._tracker.store, self.known_id, path)
            self._feeds.append(feed)
            self._tracker.outbox.add_feed(feed.poll)

        self._tracker.put(start)

    def _finish_feeds(self) -> None:
        while self._feeds:
            feed = self._feeds[0]
            self._tracker.outbox.remove_feed(feed.poll)
            feed.close()
            self._feeds.pop(0)


_OF_THE_SESSION = (RefusedError, AttributeError, KeyError, TypeError, ValueError)
"""Errors that concern a single session (invalid content, refused by the server); other sessions may succeed."""


def send_kept(config: TrackingConfig, *, running_pipeline: str | None = None) -> tuple[int, int]:
    """Send the sessions that earlier stages could not send; those that fail are kept.

    A session that is refused or invalid does not block the others.

    Args:
        config: Tracking configuration; only sessions of its server and experiment are sent.
        running_pipeline: Key of the pipeline run that is still in progress, if any.

    Returns:
        The number of sessions that were sent, and of those that are left.

    Raises:
        LeftError: For a pipeline run in progress only: the server could not take a session. The remaining sessions are
            not tried, because each would wait too.
    """
    paths = kept_sessions(place_of(config.uri, config.experiment_name))
    sent = 0
    for path in paths:
        try:
            with claimed(path) as kept:
                if kept is not None:
                    tell_again(config, kept, running_pipeline=running_pipeline)
                    sent += 1
                    say(f"{masked(config.uri)} has now the records that were kept in {path}")
        except Exception as error:
            warn(f"the records in {path} could not be sent ({masked(str(error))[:200]}); they are kept.")
            if not isinstance(error, _OF_THE_SESSION):
                if running_pipeline is None:
                    break
                raise LeftError from error
    return sent, len([path for path in paths if path.exists()])


def tell_again(config: TrackingConfig, kept: Mapping[str, Any], *, running_pipeline: str | None) -> None:
    """Repeat the calls of a kept session. Artifacts that are missing or have changed are skipped.

    Args:
        config: Tracking configuration.
        kept: Content of the session's file.
        running_pipeline: Key of the pipeline run that is still in progress, whose status is left unchanged; None if
            none is.

    Raises:
        RefusedError: The server refused an essential call; the calls after it were not sent.
    """
    # Whether load was to be recorded is a fact of the session: a call to follow it is among the calls.
    tracker = MlflowTracker(dataclasses.replace(config, system_metrics=True), AtOnce(), **kept["opening"])
    runs: list[MlflowTrackedRun] = []
    for call in kept["calls"]:
        if tracker.outbox.dead:
            raise RefusedError("the server refuses what the rest depends on")
        arguments = dict(call["arguments"])
        if (path := arguments.get("path")) is not None:
            arguments["path"] = Path(path) if isinstance(path, str) else unmarked(path)
            if arguments["path"] is None:
                continue
        match call["call"]:
            case "begin_stage":
                inputs = {name: (Path(path), digest) for name, (path, digest) in arguments.pop("inputs").items()}
                runs.append(tracker.stage(**arguments, inputs=inputs))
            case "end":
                runs[call["stage"]].close(**arguments)
            case "close":
                goes_on = tracker.pipeline_key == running_pipeline or arguments["status"] == "RUNNING"
                if not goes_on and tracker.run_id is not None:
                    tracker.store.set_status(tracker.run_id, arguments["status"])
            case method:
                run = tracker if call["stage"] is None else runs[call["stage"]]
                # Earlier versions had other names for calls of the pipeline's run.
                getattr(run, method.replace("pipeline_", ""))(**arguments)
