"""Tracking with MLflow: everything is queued in an outbox, so that the work never waits for a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from bertline.foundation.metrics_log import read_metrics
from bertline.foundation.progress import say, warn
from bertline.tracking.addresses import is_local, masked
from bertline.tracking.champions import Standing
from bertline.tracking.config import TrackingConfig
from bertline.tracking.feeds import ArtifactFeed, MetricsFeed
from bertline.tracking.inputs import dataset_inputs
from bertline.tracking.outbox import Outbox, RefusedError
from bertline.tracking.registry import register_folder
from bertline.tracking.store import PARENT_TAG, Status, Store, refusals
from bertline.tracking.tracker import StageRun, Tracker, status_after
from bertline.tracking.trials import TrialsFeed
from bertline.tracking.values import flatten

_Feed = MetricsFeed | TrialsFeed | ArtifactFeed

LINE_TAG = "bertline.line_key"
STAGE_TAG = "bertline.stage"
KEY_TAG = "bertline.stage_key"


class MlflowTracker(Tracker):
    """See `tracker.Tracker`."""

    def __init__(
        self, config: TrackingConfig, *, line_key: str, tags: Mapping[str, str], params: Mapping[str, Any]
    ) -> None:
        self._config = config
        self._sends_text = config.log_text or is_local(config.uri)
        self.store = Store(config.uri, config.experiment_name)
        self.outbox = Outbox(config.uri)
        self.put(lambda: self._open_line(line_key, tags), essential=True)
        self.put(lambda: self.store.log_params(_known(self.run_id), self.flat(params)))

    @contextmanager
    def stage(
        self,
        name: str,
        *,
        key: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        inputs: Mapping[str, tuple[Path, str]],
    ) -> Iterator[StageRun]:
        run = MlflowStageRun(self)
        self.put(lambda: run.open(name, key, tags), essential=True)
        self.put(lambda: self.store.log_params(_known(run.run_id), self.flat(params)))
        run.log_datasets(inputs)
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

    def log_line_metrics(self, metrics: Mapping[str, float]) -> None:
        self.put_metrics(lambda: _known(self.run_id), metrics)

    def log_line_artifact(self, path: Path, *, contains_text: bool) -> None:
        self.put_artifact(lambda: _known(self.run_id), path, contains_text=contains_text)

    def set_line_tags(self, tags: Mapping[str, str]) -> None:
        self.put(lambda: self.store.set_tags(_known(self.run_id), tags))

    def register(
        self, name: str, folder: Path, *, alias: str, tags: Mapping[str, str], standing: Standing | None = None
    ) -> str | None:
        if not self.outbox.flush() or self.run_id is None:
            warn(f"{name} was not registered: {masked(self._config.uri)} cannot be reached.")
            return None
        try:
            return register_folder(
                self.store, self.run_id, name=name, folder=folder, alias=alias, tags=tags, standing=standing
            )
        except Exception as error:
            warn(f"{name} was not registered: {masked(str(error))}")
            return None

    def close(self, status: str = "FINISHED") -> None:
        self.put(lambda: self.store.set_status(_known(self.run_id), cast(Status, status)))
        self.outbox.close()

    def put(self, task: Callable[[], None], *, essential: bool = False) -> None:
        """Queue a call to MLflow."""

        def checked() -> None:
            with refusals():
                task()

        self.outbox.put(checked, essential=essential)

    def flat(self, params: Mapping[str, Any]) -> dict[str, str]:
        """Parameters as MLflow takes them, without the user's sentences where those must stay here."""
        return flatten(params, with_text=self._sends_text)

    def put_metrics(
        self, run_id: Callable[[], str], metrics: Mapping[str, float], name: Callable[[str], str] = str
    ) -> None:
        """Queue figures that belong to no step; told again, the newer value counts. `name` may rename their keys."""
        at_s = time.time()

        def send() -> None:
            # MLflow shows the value of the last step: a figure told again gets a step of its own.
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
        """Queue a file or folder, unless it has the user's text and that must stay here."""

        def send() -> None:
            if path.is_dir():
                self.store.client.log_artifacts(run_id(), str(path), path.name)
            else:
                self.store.client.log_artifact(run_id(), str(path))

        if self.may_send(path, contains_text=contains_text):
            self.put(send)

    def may_send(self, path: Path, *, contains_text: bool) -> bool:
        """Whether a file may go to where runs are recorded; says so where it may not."""
        allowed = self._sends_text or not contains_text
        if not allowed:
            say(f"{path} stays on this machine: it contains your text, and tracking.log_text is false.")
        return allowed

    def _open_line(self, line_key: str, tags: Mapping[str, str]) -> None:
        run_id = self.store.find_or_create_run({LINE_TAG: line_key}, f"line {line_key[:10]}", {})
        self.store.set_status(run_id, "RUNNING")
        self.store.set_tags(run_id, tags)
        self.run_id = run_id


class MlflowStageRun(StageRun):
    """See `tracker.StageRun`."""

    def __init__(self, tracker: MlflowTracker) -> None:
        self._tracker = tracker
        self._feeds: list[_Feed] = []
        self._followed: list[Path] = []
        self._monitor: Any = None

    def open(self, name: str, key: str, tags: Mapping[str, str]) -> None:
        """Continue the run of this stage in this line, or take over an unfinished one of an earlier line."""
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
        self._followed.append(metrics_jsonl)
        self._follow(lambda: MetricsFeed(self._tracker.store, _known(self.run_id), metrics_jsonl))

    def follow_events(self, events_jsonl: Path) -> None:
        self._follow(lambda: TrialsFeed(self._tracker.store, _known(self.run_id), events_jsonl))

    def follow_artifact(self, path: Path, *, contains_text: bool) -> None:
        if self._tracker.may_send(path, contains_text=contains_text):
            self._follow(lambda: ArtifactFeed(self._tracker.store, _known(self.run_id), path))

    def log_metrics(self, metrics: Mapping[str, float]) -> None:
        # A figure with the name of a curve would be one more point on it.
        rows = (row for path in self._followed for row in read_metrics(path))
        curves = {key for row in rows for key in row.metrics}
        self._tracker.put_metrics(
            lambda: _known(self.run_id), metrics, lambda key: f"final/{key}" if key in curves else key
        )

    def log_artifact(self, path: Path, *, contains_text: bool) -> None:
        self._tracker.put_artifact(lambda: _known(self.run_id), path, contains_text=contains_text)

    def log_datasets(self, inputs: Mapping[str, tuple[Path, str]]) -> None:
        client = self._tracker.store.client
        self._tracker.put(lambda: client.log_inputs(_known(self.run_id), dataset_inputs(inputs)))

    def set_tags(self, tags: Mapping[str, str]) -> None:
        self._tracker.put(lambda: self._tracker.store.set_tags(_known(self.run_id), tags))

    def watch_system(self, every_s: float) -> None:
        """Record processor, memory, disk, network and GPU use until the stage ends."""
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        self._monitor = SystemMetricsMonitor(
            _known(self.run_id), sampling_interval=every_s, resume_logging=True, tracking_uri=self._tracker.store.uri
        )
        self._monitor.start()

    def end(self, status: Status) -> None:
        """Send the rest of every followed file, then set the status, and wait for both."""
        self._tracker.put(self._finish_feeds)
        self._tracker.put(lambda: self._tracker.store.set_status(_known(self.run_id), status))
        self._tracker.outbox.flush()

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


def _known(run_id: str | None) -> str:
    if run_id is None:
        raise RefusedError("the run could not be opened")
    return run_id
