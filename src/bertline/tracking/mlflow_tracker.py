"""Tracking with MLflow: all calls are queued in an outbox, so that stages do not wait for a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from bertline.foundation.errors import BertlineError
from bertline.foundation.files import size_of_path
from bertline.foundation.metrics_log import read_metrics
from bertline.foundation.progress import say, warn
from bertline.tracking.addresses import database_file, is_local, masked
from bertline.tracking.champions import Standing
from bertline.tracking.config import TrackingConfig
from bertline.tracking.feeds import ArtifactFeed, MetricsFeed
from bertline.tracking.inputs import dataset_inputs
from bertline.tracking.outbox import AtOnce, LeftError, Outbox, RefusedError
from bertline.tracking.registry import register_folder
from bertline.tracking.serving import Serving
from bertline.tracking.store import PARENT_TAG, Status, Store, refusals
from bertline.tracking.tables import log_rows
from bertline.tracking.tracker import TrackedRun, Tracker, status_after
from bertline.tracking.trials import TrialsFeed
from bertline.tracking.unsent import Session, claimed, kept_sessions, marked, place_of, unmarked
from bertline.tracking.values import flatten, without_text

_Feed = MetricsFeed | TrialsFeed | ArtifactFeed

PIPELINE_KEY_TAG = "bertline.pipeline_key"
SERVER_PATIENCE_S = 10.0
# A local database is always reachable, but may be locked while another process writes.
_LOCAL_PATIENCE_S = 60.0
STAGE_TAG = "bertline.stage"
KEY_TAG = "bertline.stage_key"


class MlflowTracker(Tracker):
    """MLflow implementation of `tracker.Tracker`."""

    def __init__(
        self,
        config: TrackingConfig,
        *,
        pipeline_key: str,
        tags: Mapping[str, str],
        params: Mapping[str, Any],
        name: str = "pipeline",
        outbox: Outbox | None = None,
    ) -> None:
        self._config = config
        self.pipeline_key = pipeline_key
        self.session = Session({"pipeline_key": pipeline_key, "tags": dict(tags), "params": dict(params), "name": name})
        self._num_stages = 0
        self._sends_text = config.log_text or is_local(config.uri)
        self.store = Store(config.uri, config.experiment_name)
        patience_s = _LOCAL_PATIENCE_S if database_file(config.uri) else SERVER_PATIENCE_S
        self.outbox = outbox or Outbox(config.uri, patience_s=patience_s)
        self.put(lambda: self._open_pipeline_run(f"{name} {pipeline_key[:10]}", tags), essential=True)
        self.put(lambda: self.store.log_params(_known(self.run_id), self.flat(params)))
        if outbox is None:
            self.put(self._send_kept)

    @contextmanager
    def stage(
        self,
        name: str,
        *,
        key: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        inputs: Mapping[str, tuple[Path, str]],
    ) -> Iterator[TrackedRun]:
        run = self.begin_stage(name, key=key, params=params, tags=tags, inputs=inputs)
        if self._config.system_metrics:
            self.put(lambda: run.watch_system(self._config.system_metrics_every_s))
        status = "FAILED"
        try:
            yield run
            status = "FINISHED"
        except BaseException as error:
            status = status_after(error)
            raise
        finally:
            run.end(cast(Status, status))

    def begin_stage(
        self,
        name: str,
        *,
        key: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        inputs: Mapping[str, tuple[Path, str]],
    ) -> MlflowTrackedRun:
        """Open the run of a stage; the caller must call its `end`."""
        run = MlflowTrackedRun(self, self._num_stages)
        self._num_stages += 1
        plain_inputs = {name: (str(path), digest) for name, (path, digest) in inputs.items()}
        self.session.note("begin_stage", name=name, key=key, params=dict(params), tags=dict(tags), inputs=plain_inputs)
        self.put(lambda: run.open(name, key, tags), essential=True)
        self.put(lambda: self.store.log_params(_known(run.run_id), self.flat(params)))
        run.log_datasets(inputs)
        return run

    def log_pipeline_metrics(self, metrics: Mapping[str, float]) -> None:
        self.session.note("log_pipeline_metrics", metrics=dict(metrics))
        self.put_metrics(lambda: _known(self.run_id), metrics)

    def log_pipeline_artifact(self, path: Path, *, contains_text: bool) -> None:
        self.session.note("log_pipeline_artifact", path=marked(path), contains_text=contains_text)
        self.put_artifact(lambda: _known(self.run_id), path, contains_text=contains_text)

    def log_config(self, config: Mapping[str, Any]) -> None:
        self.session.note("log_config", config=dict(config))
        sent = config if self._sends_text else without_text(config)
        self.put(lambda: self.store.client.log_dict(_known(self.run_id), dict(sent), "config.yaml"))

    def set_pipeline_tags(self, tags: Mapping[str, str]) -> None:
        self.session.note("set_pipeline_tags", tags=dict(tags))
        self.put(lambda: self.store.set_tags(_known(self.run_id), tags))

    def register(
        self,
        name: str,
        folder: Path,
        *,
        alias: str,
        tags: Mapping[str, str],
        serving: Serving,
        standing: Standing | None = None,
    ) -> str | None:
        if not self.outbox.flush() or self.run_id is None:
            warn(f"{name} was not registered: {masked(self._config.uri)} cannot be reached.")
            return None
        try:
            return register_folder(
                self.store,
                self.run_id,
                name=name,
                folder=folder,
                alias=alias,
                tags=tags,
                serving=serving,
                standing=standing,
            )
        except Exception as error:
            warn(f"{name} was not registered: {masked(str(error))}")
            return None

    def close(self, status: str = "FINISHED") -> None:
        self.session.note("close", status=status)
        if status != "RUNNING":
            self.put(lambda: self.store.set_status(_known(self.run_id), cast(Status, status)))
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

    def put_metrics(
        self, run_id: Callable[[], str], metrics: Mapping[str, float], name: Callable[[str], str] = str
    ) -> None:
        """Queue metrics without a step; a repeated metric replaces the older value. `name` may rename the keys."""
        at_s = time.time()

        def send() -> None:
            # MLflow shows the value of the last step, so a changed value gets a new step.
            has = self.store.get_run(run_id()).data.metrics
            points = []
            for told, value in metrics.items():
                key = name(told)
                if key not in has:
                    points.append((key, float(value), at_s, 0))
                elif has[key] != float(value):
                    points.append((key, float(value), at_s, max(self.store.known_steps(run_id(), key)) + 1))
            self.store.log_points(run_id(), points)

        self.put(send)

    def put_artifact(self, run_id: Callable[[], str], path: Path, *, contains_text: bool) -> None:
        """Queue a file or folder, unless it contains the user's text and this must not leave the machine."""

        def send() -> None:
            if path.is_dir():
                self.store.client.log_artifacts(run_id(), str(path), path.name)
            else:
                self.store.client.log_artifact(run_id(), str(path))

        if self.may_send(path, contains_text=contains_text):
            self.put(send, num_bytes=size_of_path(path) if path.exists() else 0)

    def may_send(self, path: Path, *, contains_text: bool) -> bool:
        """Return whether a file may be sent to the tracking store; log a message if not."""
        allowed = self._sends_text or not contains_text
        if not allowed:
            say(f"{path} stays on this machine: it contains your text, and tracking.log_text is false.")
        return allowed

    def _send_kept(self) -> None:
        """Send the sessions that earlier stages could not send. Failed sessions are kept.

        A session that is refused or invalid does not block the others.

        Raises:
            LeftError: The server could not take a session. The remaining sessions are not tried: they would wait too.
        """
        for path in kept_sessions(place_of(self._config.uri, self._config.experiment_name)):
            try:
                with claimed(path) as kept:
                    if kept is not None:
                        tell_again(self._config, kept, running_pipeline=self.pipeline_key)
                        say(f"{masked(self._config.uri)} has now the records that were kept in {path}")
            except Exception as error:
                warn(f"the records in {path} could not be sent ({masked(str(error))[:200]}); they are kept.")
                if not isinstance(error, _OF_THE_SESSION):
                    raise LeftError from error

    def _open_pipeline_run(self, name: str, tags: Mapping[str, str]) -> None:
        run_id = self.store.find_or_create_run({PIPELINE_KEY_TAG: self.pipeline_key}, name, {})
        self.store.set_status(run_id, "RUNNING")
        self.store.set_tags(run_id, tags)
        self.run_id = run_id


class MlflowTrackedRun(TrackedRun):
    """MLflow implementation of `tracker.TrackedRun`."""

    def __init__(self, tracker: MlflowTracker, number: int) -> None:
        self._tracker = tracker
        self._number = number
        self._feeds: list[_Feed] = []
        self._followed: list[Path] = []
        self._followed_artifacts: list[tuple[Path, bool]] = []
        self._monitor: Any = None

    def open(self, name: str, key: str, tags: Mapping[str, str]) -> None:
        """Continue the run of this stage in this pipeline run, or adopt an unfinished one of an earlier pipeline
        run."""
        store, line = self._tracker.store, _known(self._tracker.run_id)
        identity = {STAGE_TAG: name, KEY_TAG: key}
        candidates = store.find_runs(identity)
        mine = [run for run in candidates if run.data.tags.get(PARENT_TAG) == line]
        left = [run for run in candidates if run.info.status != "FINISHED"]
        if mine or left:
            run_id = (mine or left)[0].info.run_id
            store.set_tags(run_id, {PARENT_TAG: line, **tags})
        else:
            run_id = store.find_or_create_run({**identity, PARENT_TAG: line}, name, tags)
        store.set_status(run_id, "RUNNING")
        self.run_id = run_id

    def follow(self, metrics_jsonl: Path) -> None:
        self._note("follow", path=str(metrics_jsonl))
        self._followed.append(metrics_jsonl)
        self._follow(lambda: MetricsFeed(self._tracker.store, _known(self.run_id), metrics_jsonl))

    def follow_events(self, events_jsonl: Path) -> None:
        self._note("follow_events", path=str(events_jsonl))
        self._follow(lambda: TrialsFeed(self._tracker.store, _known(self.run_id), events_jsonl))

    def follow_artifact(self, path: Path, *, contains_text: bool) -> None:
        self._followed_artifacts.append((path, contains_text))
        if self._tracker.may_send(path, contains_text=contains_text):
            self._follow(lambda: ArtifactFeed(self._tracker.store, _known(self.run_id), path))

    def log_metrics(self, metrics: Mapping[str, float]) -> None:
        self._note("log_metrics", metrics=dict(metrics))
        # A metric with the name of a curve would add a point to the curve.
        rows = (row for path in self._followed for row in read_metrics(path))
        curves = {key for row in rows for key in row.metrics}
        self._tracker.put_metrics(
            lambda: _known(self.run_id), metrics, lambda key: f"final/{key}" if key in curves else key
        )

    def log_artifact(self, path: Path, *, contains_text: bool) -> None:
        self._note("log_artifact", path=marked(path), contains_text=contains_text)
        self._tracker.put_artifact(lambda: _known(self.run_id), path, contains_text=contains_text)

    def log_table(
        self, path: Path, name: str, *, num_rows: int = 1000, wrong_only: bool = False, contains_text: bool
    ) -> None:
        rows: dict[str, Any] = {"name": name, "num_rows": num_rows, "wrong_only": wrong_only}
        self._note("log_table", path=marked(path), **rows, contains_text=contains_text)
        if path.exists() and self._tracker.may_send(path, contains_text=contains_text):
            self._tracker.put(lambda: log_rows(self._tracker.store.client, _known(self.run_id), path, **rows))

    def log_datasets(self, inputs: Mapping[str, tuple[Path, str]]) -> None:
        client = self._tracker.store.client
        self._tracker.put(lambda: client.log_inputs(_known(self.run_id), dataset_inputs(inputs)))

    def set_tags(self, tags: Mapping[str, str]) -> None:
        self._note("set_tags", tags=dict(tags))
        self._tracker.put(lambda: self._tracker.store.set_tags(_known(self.run_id), tags))

    def watch_system(self, every_s: float) -> None:
        """Record CPU, memory, disk, network and GPU usage until the stage ends."""
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        self._monitor = SystemMetricsMonitor(
            _known(self.run_id), sampling_interval=every_s, resume_logging=True, tracking_uri=self._tracker.store.uri
        )
        self._monitor.start()

    def end(self, status: Status) -> None:
        """Send the rest of every followed file, set the status unless work continues (RUNNING), and wait for both."""
        for path, contains_text in self._followed_artifacts:
            self._note("log_artifact", path=marked(path), contains_text=contains_text)
        self._note("end", status=status)
        self._tracker.put(self._finish_feeds)
        if status != "RUNNING":
            self._tracker.put(lambda: self._tracker.store.set_status(_known(self.run_id), status))
        self._tracker.outbox.flush()

    def _note(self, call: str, **arguments: Any) -> None:
        self._tracker.session.note(call, self._number, **arguments)

    def _follow(self, make: Callable[[], _Feed]) -> None:
        def start() -> None:
            feed = make()
            self._feeds.append(feed)
            self._tracker.outbox.add_feed(feed.poll)

        self._tracker.put(start)

    def _finish_feeds(self) -> None:
        if self._monitor is not None:
            self._monitor.finish()
            self._monitor = None
        while self._feeds:
            feed = self._feeds[0]
            self._tracker.outbox.remove_feed(feed.poll)
            feed.close()
            self._feeds.pop(0)


_OF_THE_SESSION = (RefusedError, AttributeError, KeyError, TypeError, ValueError)
"""Errors that concern a single session (invalid content, refused by the server); other sessions may succeed."""


def tell_again(config: TrackingConfig, kept: Mapping[str, Any], *, running_pipeline: str) -> None:
    """Repeat the calls of a kept session. Artifacts that are missing or have changed are skipped.

    Args:
        config: Tracking configuration.
        kept: Content of the session's file.
        running_pipeline: Key of the pipeline run that is still in progress; its status is left unchanged.

    Raises:
        RefusedError: The server refused an essential call; the calls after it were not sent.
    """
    tracker = MlflowTracker(config, **kept["opening"], outbox=AtOnce())
    runs: list[MlflowTrackedRun] = []
    for call in kept["calls"]:
        if tracker.outbox.dead:
            raise RefusedError("the server refuses what the rest depends on")
        arguments = dict(call["arguments"])
        if isinstance(arguments.get("path"), Mapping):
            arguments["path"] = unmarked(arguments["path"])
            if arguments["path"] is None:
                continue
        elif "path" in arguments:
            path = Path(arguments.pop("path"))
            arguments["metrics_jsonl" if call["call"] == "follow" else "events_jsonl"] = path
        match call["call"]:
            case "begin_stage":
                inputs = {name: (Path(path), digest) for name, (path, digest) in arguments.pop("inputs").items()}
                runs.append(tracker.begin_stage(**arguments, inputs=inputs))
            case "close":
                goes_on = tracker.pipeline_key == running_pipeline or arguments["status"] == "RUNNING"
                if not goes_on and tracker.run_id is not None:
                    tracker.store.set_status(tracker.run_id, arguments["status"])
            case method:
                getattr(tracker if call["stage"] is None else runs[call["stage"]], method)(**arguments)


def _known(run_id: str | None) -> str:
    if run_id is None:
        raise RefusedError("the run could not be opened")
    return run_id
