"""A server that accepts and never answers does not keep a stage, and what it did not take is sent later."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from bertline.foundation.metrics_log import MetricsLog
from bertline.tracking import mlflow_tracker
from bertline.tracking import outbox as outbox_module
from bertline.tracking.config import TrackingConfig
from bertline.tracking.outbox import LeftError, Outbox
from bertline.tracking.store import LOG, Store
from bertline.tracking.tracker import open_tracker
from bertline.tracking.unsent import Session, claimed, kept_sessions, marked, place_of, unmarked
from servers import wait_until
from serving_inputs import serving


@pytest.fixture
def silent_address() -> Iterator[str]:
    """A real socket that accepts every connection and never answers."""
    held: list[socket.socket] = []
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)

        def accept() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    for connection in held:
        connection.close()


def told(config: TrackingConfig, folder: Path) -> None:
    """A stage with everything that a stage can tell."""
    metrics, report = folder / "metrics.jsonl", folder / "report.html"
    MetricsLog(metrics).log(10, {"train/loss": 2.0})
    report.write_text("first")
    (folder / "changed.txt").write_text("first")
    inputs = {"corpus": (Path("artifacts/corpus"), "0123.dir")}
    with open_tracker(config, pipeline_key="pipeline", tags={"a": "b"}, params={"model": {"size": 2}}) as tracker:
        with tracker.stage("pretrain", key="key", params={"lr": 0.1}, tags={"c": "d"}, inputs=inputs) as run:
            run.follow(metrics)
            run.follow_artifact(report, contains_text=False)
            run.log_artifact(folder / "changed.txt", contains_text=False)
            run.log_metrics({"val/loss": 1.5})
            run.set_tags({"e": "f"})
        tracker.log_metrics({"pretrain/val/loss": 1.5})
        assert tracker.register("encoder", folder, alias="current", tags={}, serving=serving()) is None


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a stage waits is tested with a clock, below."""
    monkeypatch.setattr(mlflow_tracker, "SERVER_PATIENCE_S", 0.2)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")


@pytest.mark.usefixtures("_impatient")
def test_a_server_that_never_answers_gets_all_of_it_later(
    config: TrackingConfig, silent_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    away = dataclasses.replace(config, uri=silent_address)
    told(away, tmp_path)
    (kept,) = kept_sessions(place_of(silent_address, config.experiment_name))
    assert silent_address not in str(kept)
    (tmp_path / "changed.txt").write_text("of another run")

    # The server is back: here, another store stands for it.
    place = place_of(config.uri, config.experiment_name)
    place.mkdir(parents=True)
    kept.rename(place / kept.name)
    with (
        open_tracker(config, pipeline_key="pipeline", tags={}, params={}) as tracker,
        tracker.stage("sweep", key="key", params={}, tags={}, inputs={}),
    ):
        pass
    client = MlflowClient(config.uri)
    experiment = client.get_experiment_by_name(config.experiment_name)
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {"pipeline pipeline", "pretrain", "sweep"}
    late = runs["pretrain"]
    assert late.info.status == "FINISHED"
    assert late.data.params == {"lr": "0.1"}
    assert late.data.metrics == {"train/loss": 2.0, "val/loss": 1.5}
    assert {"c": "d", "e": "f"}.items() <= late.data.tags.items()
    assert [one.dataset.name for one in late.inputs.dataset_inputs] == ["corpus"]
    assert [file.path for file in client.list_artifacts(late.info.run_id)] == ["report.html"]
    assert runs["pipeline pipeline"].data.metrics == {"pretrain/val/loss": 1.5}
    assert runs["pipeline pipeline"].data.params == {"model.size": "2"}
    assert list(place.iterdir()) == []


def test_records_of_a_session_that_cannot_be_sent_are_kept_and_hold_up_nothing(
    config: TrackingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    place = place_of(config.uri, config.experiment_name)
    session = Session({"pipeline_key": "other", "tags": {}, "params": {}})
    session.note("no_such_call")
    kept = session.keep(place)
    (place / "0-torn.json").write_text("{")
    later = Session({"pipeline_key": "later", "tags": {}, "params": {}})
    later.note("log_pipeline_metrics", metrics={"b": 2.0})
    good = later.keep(place)
    with open_tracker(config, pipeline_key="pipeline", tags={}, params={}) as tracker:
        tracker.log_metrics({"a": 1.0})
    assert kept.exists() and (place / "0-torn.json").exists() and not good.exists()
    assert "could not be sent" in capsys.readouterr().err
    run = MlflowClient(config.uri).get_run(str(tracker.run_id))
    assert (run.info.status, run.data.metrics) == ("FINISHED", {"a": 1.0})


@pytest.mark.usefixtures("_impatient")
def test_a_server_that_falls_silent_while_it_gets_earlier_records_loses_none(
    config: TrackingConfig, silent_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # It answered once, to the opening of the pipeline run, and never again.
    monkeypatch.setattr(Store, "log_params", lambda *_: None)
    opened = mlflow_tracker.MlflowTracker._open_pipeline_run
    monkeypatch.setattr(
        mlflow_tracker.MlflowTracker,
        "_open_pipeline_run",
        lambda self, key, tags: setattr(self, "run_id", "1") if key == "pipeline" else opened(self, key, tags),
    )
    place = place_of(silent_address, config.experiment_name)
    for number in range(5):
        session = Session({"pipeline_key": f"earlier {number}", "tags": {}, "params": {}})
        session.note("log_pipeline_metrics", metrics={"a": 1.0})
        session.keep(place)
    with open_tracker(
        dataclasses.replace(config, uri=silent_address), pipeline_key="pipeline", tags={}, params={}
    ) as tracker:
        tracker.log_metrics({"b": 2.0})
    assert len(kept_sessions(place)) == 6


class Clock:
    """The clock of an outbox: a second passes whenever a caller that waits looks at it, and when a task says so."""

    def __init__(self) -> None:
        self.now_s, self.num_looks = 0.0, 0
        self.stands_still = False

    def monotonic(self) -> float:
        if threading.current_thread() is threading.main_thread():
            self.num_looks += 1
            self.now_s += 0.0 if self.stands_still else 1.0
        return self.now_s

    def pass_while_waited_for(self, seconds: float) -> None:
        """Pass so much time at once, and let the caller that waits see it."""
        self.stands_still = True
        self.now_s += seconds
        looks = self.num_looks
        wait_until(lambda: self.num_looks > looks + 2, every_s=0.01)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(outbox_module, "time", made)
    monkeypatch.setattr(outbox_module, "_POLL_S", 0.01)
    return made


def test_one_deadline_counts_for_all_who_wait(clock: Clock) -> None:
    silence = threading.Event()
    outbox = Outbox("test", patience_s=50)
    outbox.put(silence.wait)  # type: ignore[arg-type]
    outbox.put(lambda: None)
    assert not outbox.flush()
    assert not outbox.flush()
    assert not outbox.close()
    assert 50 < clock.now_s < 70
    silence.set()


def test_a_slow_server_is_waited_for_while_it_answers(clock: Clock) -> None:
    done: list[int] = []

    def answer(number: int) -> None:
        clock.pass_while_waited_for(30)
        done.append(number)

    outbox = Outbox("test", patience_s=50)
    clock.stands_still = True
    for number in range(5):
        outbox.put(lambda number=number: answer(number))  # type: ignore[misc]
    assert outbox.flush()
    assert done == [0, 1, 2, 3, 4]
    assert outbox.close()


def test_what_is_left_for_later_is_dropped_and_no_sign_of_life(clock: Clock) -> None:
    def left() -> None:
        clock.pass_while_waited_for(200)
        clock.stands_still = False
        raise LeftError

    silence = threading.Event()
    outbox = Outbox("test", patience_s=250)
    clock.stands_still = True
    outbox.put(left)
    outbox.put(silence.wait)  # type: ignore[arg-type]
    assert not outbox.flush()
    assert 250 < clock.now_s < 270  # and not 450
    silence.set()
    outbox.close()


def test_an_upload_has_time_for_its_size(clock: Clock) -> None:
    outbox = Outbox("test", patience_s=0.2)
    clock.stands_still = True
    outbox.put(lambda: clock.pass_while_waited_for(2.9), num_bytes=3_000_000)
    assert outbox.flush()
    assert outbox.close()


def test_a_kept_session_is_sent_by_one_process_at_a_time(tmp_path: Path) -> None:
    path = Session({"pipeline_key": "pipeline", "tags": {}, "params": {}}).keep(tmp_path)
    with claimed(path) as first, claimed(path) as second:
        assert first is not None and json.dumps(first)
        assert second is None
    assert not path.exists()


@pytest.mark.usefixtures("no_locks")
def test_a_kept_session_is_sent_from_a_file_system_without_locks(tmp_path: Path) -> None:
    path = Session({"pipeline_key": "pipeline", "tags": {}, "params": {}}).keep(tmp_path)
    with claimed(path) as content:
        assert content is not None and content["format_version"]
    assert not path.exists()


def test_a_path_with_other_content_than_then_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("first")
    of_file, of_folder = marked(tmp_path / "a"), marked(tmp_path)
    assert unmarked(of_file) == tmp_path / "a" and unmarked(of_folder) == tmp_path
    (tmp_path / "a").write_text("other content")
    assert unmarked(of_file) is None and unmarked(of_folder) is None


def test_a_path_that_goes_while_it_is_looked_at_has_no_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("first")
    look = Path.stat

    def gone(path: Path, **named: bool) -> os.stat_result:
        found = look(path, **named)
        if path.name == "a":
            path.unlink()  # after `is_file` has seen it
        return found

    monkeypatch.setattr(Path, "stat", gone)
    kept = marked(tmp_path)
    assert kept["mark"] is None
    (tmp_path / "a").write_text("second")
    assert unmarked(kept) is None  # it goes again


def test_retries_of_connections_are_logged_to_a_file_only(
    config: TrackingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_tracker(config, pipeline_key="pipeline", tags={}, params={}):
        logging.getLogger("urllib3.connectionpool").warning("Retrying after https://ada:pa55@h: %s", "refused")
    output = capsys.readouterr()
    assert "Retrying" not in output.err + output.out
    assert "Retrying after https://ada:***@h: refused" in (tmp_path / LOG).read_text()
