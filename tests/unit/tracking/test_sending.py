"""Run folders sent to a real SQLite store: everything once, whatever happened before."""

from __future__ import annotations

import dataclasses
import json
import socket
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts

from bertline.foundation.files import write_atomically
from bertline.foundation.metrics_log import MetricsLog
from bertline.tracking import sending as sending_module
from bertline.tracking.config import TrackingConfig
from bertline.tracking.sending import send_all, sending
from bertline.tracking.tracked_runs import PARENT_TAG, RUNS_NAME, Attachment, ShownTable, write_tracked_runs
from servers import wait_until
from tracking_inputs import event, files_of, finish, opened, record, runs_of, send, set_state, steps_of


def logged(folder: Path, steps: range, name: str = "metrics.jsonl", key: str = "train/loss") -> None:
    log = MetricsLog(folder / name)
    for step in steps:
        log.log(step, {key: 1 / (step + 1)})


def text_of(config: TrackingConfig, run: Any, name: str) -> str:
    return Path(download_artifacts(f"runs:/{run.info.run_id}/{name}", tracking_uri=config.uri)).read_text()


def test_a_pipeline_has_one_run_with_its_stages_nested_in_it(config: TrackingConfig, folder: Path) -> None:
    digest = "0123456789abcdef0123456789abcdef.dir"
    content = record(config, params={"lr": 0.1}, tags={"a": "b"}, inputs={"examples": ("artifacts/examples", digest)})
    content.pipeline.params = {"model": {"hidden_size": 128}}
    opened(folder, content)
    (folder / "metrics.jsonl").write_text('{"step": 10, "time_s": 1234.5, "metrics": {"train/loss": 2.0}}\n')
    assert send(folder)
    assert {run.info.status for run in runs_of(config).values()} == {"RUNNING"}
    content.stage.log_metrics({"val/mlm_loss": 1.5})
    content.stage.tags["output"] = "sha"
    content.pipeline.log_metrics({"val/mlm_loss": 1.5})
    finish(folder, content)
    assert send(folder)
    whole, part = runs_of(config)["preset pipeline-1"], runs_of(config)["pretrain"]
    assert (whole.info.status, part.info.status) == ("FINISHED", "FINISHED")
    assert part.data.tags[PARENT_TAG] == whole.info.run_id
    assert (whole.data.params, part.data.params) == ({"model.hidden_size": "128"}, {"lr": "0.1"})
    assert whole.data.metrics == {"val/mlm_loss": 1.5}
    assert part.data.metrics == {"train/loss": 2.0, "val/mlm_loss": 1.5}
    assert (part.data.tags["a"], part.data.tags["output"]) == ("b", "sha")
    (dataset,) = part.inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.dataset.digest) == ("examples", digest)
    (point,) = MlflowClient(config.uri).get_metric_history(part.info.run_id, "train/loss")
    assert point.timestamp == 1_234_500


def test_a_headline_figure_is_never_one_more_point_on_a_curve(config: TrackingConfig, folder: Path) -> None:
    logged(folder, range(10, 11), key="perf/tokens_per_s")
    content = record(config)
    content.stage.log_metrics({"perf/tokens_per_s": 850.0, "test/ndcg@10": 0.5})
    opened(folder, content, "finished")
    assert send(folder)
    run = runs_of(config)["pretrain"]
    expected = {"perf/tokens_per_s": 1 / 11, "final/perf/tokens_per_s": 850.0, "test/ndcg_at_10": 0.5}
    assert run.data.metrics == expected
    assert steps_of(config, run, "perf/tokens_per_s") == [10]


def test_a_figure_that_changes_is_replaced_not_doubled(config: TrackingConfig, folder: Path) -> None:
    content = record(config)
    for value in (1.0, 1.0, 2.0, float("nan"), float("nan")):
        content.pipeline.log_metrics({"score": value, "other": float("nan")})
        opened(folder, content, "finished")
        assert send(folder)
    run = runs_of(config)["preset pipeline-1"]
    assert run.data.metrics["score"] == 2.0
    assert steps_of(config, run, "score") == [0, 1]
    assert steps_of(config, run, "other") == [0]


def test_trials_become_nested_runs_once_each_with_their_state(config: TrackingConfig, folder: Path) -> None:
    opened(folder, record(config, name="sweep"))
    path = folder / "events.jsonl"
    path.write_text(event(0) + event(1, "PRUNED", reason="Stopped early") + event(2, "FAIL", metrics={}, curve=[]))
    for more in ("", event(0, kind="seed", metrics={"dev/accuracy": 0.5, "test/accuracy": 0.6})):
        with path.open("a") as handle:
            handle.write(more)
        assert send(folder)
    runs = runs_of(config)
    states = {name.removeprefix("encoder · "): run.info.status for name, run in runs.items() if "encoder" in name}
    assert states == {"trial 0": "FINISHED", "trial 1": "KILLED", "trial 2": "FAILED", "seed 0": "FINISHED"}
    trial, pruned = runs["encoder · trial 0"], runs["encoder · trial 1"]
    assert trial.data.tags[PARENT_TAG] == runs["sweep"].info.run_id
    assert trial.data.params == {"lr": "0.1"}
    assert steps_of(config, trial, "dev/score_while_training") == [50, 100]
    assert (pruned.data.tags["optuna.state"], pruned.data.tags["mlflow.note.content"]) == ("PRUNED", "Stopped early")
    assert runs["encoder · seed 0"].data.metrics["test/accuracy"] == 0.6


def test_files_of_the_work_are_attached_while_it_runs_and_the_others_at_its_end(
    config: TrackingConfig, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded, upload_path = list[str](), sending_module.upload_path
    monkeypatch.setattr(
        sending_module, "upload_path", lambda path, *more: uploaded.append(path.name) or upload_path(path, *more)
    )
    early = Attachment(path="mask_predictions.txt", contains_text=False, while_working=True)
    late = Attachment(path="result/trials.csv", contains_text=False)
    content = opened(folder, record(config, attachments=[early, late]))
    (folder / "result").mkdir()
    (folder / "result/trials.csv").write_text("1,2")
    for text in ("step 0", "step 0 and 10"):
        write_atomically(folder / "mask_predictions.txt", text)
        assert send(folder)
        assert text_of(config, runs_of(config)["pretrain"], "mask_predictions.txt") == text
    assert files_of(config, runs_of(config)["pretrain"]) == {"mask_predictions.txt"}
    (folder / "plots").mkdir()
    (folder / "plots/a.svg").write_text("<svg/>")
    (folder / "sweep@reviews.json").write_text("{}")
    content.stage.log_artifact(folder / "sweep@reviews.json", contains_text=False)
    content.stage.log_artifact(folder / "plots", contains_text=False)
    content.stage.log_artifact(folder / "missing", contains_text=False)
    finish(folder, content)
    assert send(folder)
    files = files_of(config, runs_of(config)["pretrain"])
    assert files == {"mask_predictions.txt", "trials.csv", "plots", "sweep@reviews.json"}
    assert len(uploaded) == 5, "the file of the work twice, the others once"


def test_a_file_that_another_run_has_overwritten_is_left_out(config: TrackingConfig, folder: Path) -> None:
    (folder / "report.html").write_text("mine")
    content = record(config)
    content.stage.log_artifact(folder / "report.html", contains_text=False)
    opened(folder, content, "finished")
    (folder / "report.html").write_text("of another run")
    assert send(folder)
    assert files_of(config, runs_of(config)["pretrain"]) == set()


def test_a_table_has_the_first_rows_and_is_not_doubled(
    config: TrackingConfig, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "predictions.parquet"
    pq.write_table(pa.table({"text": ["a", "b", "c"], "correct": [True, False, False]}), path)
    content = record(config, tables=[ShownTable(path=path.name, name="errors", wrong_only=True)])
    content.stage.log_table(path, "predictions", num_rows=2)
    opened(folder, content, "finished")
    log_batch = MlflowClient.log_batch

    def lost(client: MlflowClient, run_id: str, **sent: Any) -> None:
        if any("sha256.errors" in tag.key for tag in sent.get("tags", ())):
            raise ConnectionError("the answer was lost")
        log_batch(client, run_id, **sent)

    monkeypatch.setattr(MlflowClient, "log_batch", lost)
    assert not send(folder)
    monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
    assert send(folder)
    run = runs_of(config)["pretrain"]
    tables = {name: json.loads(text_of(config, run, f"{name}.json"))["data"] for name in ("predictions", "errors")}
    assert tables == {"predictions": [["a", True], ["b", False]], "errors": [["b", False], ["c", False]]}
    assert "errors.json" in run.data.tags["mlflow.loggedArtifacts"]


def test_the_users_text_stays_here_unless_it_is_allowed_elsewhere(
    config: TrackingConfig, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sentences = {"sentences": ["mine [MASK]"], "every_steps": 5}
    (folder / "report.html").write_text("my text")
    pq.write_table(pa.table({"text": ["mine"]}), folder / "rows.parquet")
    for local, allowed in ((False, False), (False, True), (True, False)):
        monkeypatch.setattr(sending_module, "is_local", lambda uri, local=local: local)
        name = f"{local} {allowed}"
        own = dataclasses.replace(config, log_text=allowed)
        content = record(own, pipeline=name, key=name, name=name, params={"mask_predictions": sentences})
        content.pipeline.config = {"mask_predictions": sentences}
        content.stage.log_artifact(folder / "report.html", contains_text=True)
        content.stage.log_table(folder / "rows.parquet", "rows", num_rows=5)
        opened(folder, content, "finished")
        assert send(folder)
        run, whole = runs_of(config)[name], runs_of(config)[f"preset {name[:10]}"]
        shown = local or allowed
        assert ("report.html stays on this machine" in capsys.readouterr().out) is not shown
        assert files_of(config, run) == ({"report.html", "rows.json"} if shown else set())
        assert ("mask_predictions.sentences" in run.data.params) is shown
        expected = sentences if shown else {"every_steps": 5}
        assert yaml.safe_load(text_of(config, whole, "config.yaml")) == {"mask_predictions": expected}


def test_a_stage_run_again_continues_its_run_and_shows_one_clean_curve(config: TrackingConfig, folder: Path) -> None:
    for steps, state, status in (
        (range(5), "stopped", "KILLED"),
        (range(5, 10), "finished", "FINISHED"),
        (range(0), "running", "RUNNING"),
        (range(0), "finished", "FINISHED"),
    ):
        opened(folder, record(config), state)
        logged(folder, steps)
        assert send(folder)
        assert {run.info.status for run in runs_of(config).values()} == {status}
    assert steps_of(config, runs_of(config)["pretrain"], "train/loss") == list(range(10))


def test_rows_of_a_growing_file_are_sent_once_although_a_resume_rewrites_it(
    config: TrackingConfig, folder: Path
) -> None:
    opened(folder, record(config))
    log = MetricsLog(folder / "metrics.jsonl")
    sender = sending_module._Sender(folder)
    for step in (1, 2, 2, 3, 4):
        log.log(step, {"a": float(step)})
        assert sender.send()
    log.keep_up_to(2)
    for step in (3, 4, 5):
        log.log(step, {"a": float(step)})
    row = json.dumps({"step": 7, "time_s": 1.0, "metrics": {"a": 1.0}})
    with log.path.open("a") as handle:
        handle.write(row[:10])
        handle.flush()
        assert sender.send()
        assert steps_of(config, runs_of(config)["pretrain"], "a") == [1, 2, 3, 4, 5]
        handle.write(row[10:] + "\n")
    sender.close()
    assert send(folder)
    assert steps_of(config, runs_of(config)["pretrain"], "a") == [1, 2, 3, 4, 5, 7]


@pytest.mark.parametrize("arrived", [0, 3, 5])
def test_a_batch_that_arrived_in_part_is_completed_not_repeated(
    config: TrackingConfig, folder: Path, monkeypatch: pytest.MonkeyPatch, arrived: int
) -> None:
    opened(folder, record(config))
    logged(folder, range(5))
    log_batch = MlflowClient.log_batch

    def lost(client: MlflowClient, run_id: str, metrics: Any = (), **others: Any) -> None:
        log_batch(client, run_id, metrics=metrics[:arrived], **others)
        if metrics:
            raise ConnectionError("the answer was lost")

    monkeypatch.setattr(MlflowClient, "log_batch", lost)
    assert not send(folder)
    monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
    assert send(folder)
    assert steps_of(config, runs_of(config)["pretrain"], "train/loss") == [0, 1, 2, 3, 4]


def test_a_stage_is_sent_by_one_process_and_taken_over_by_the_next_pipeline(
    config: TrackingConfig, folder: Path
) -> None:
    opened(folder, record(config), "stopped")
    with closing(sending_module._Sender(folder)) as first:
        assert first.send()
        assert not send(folder)
    opened(folder, record(config, pipeline="pipeline-2"), "finished")
    assert send(folder)
    runs = runs_of(config)
    assert runs["pretrain"].data.tags[PARENT_TAG] == runs["preset pipeline-2"].info.run_id


def test_what_the_server_refuses_is_warned_of_once_and_does_not_hold_up_the_rest(
    config: TrackingConfig, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(folder, record(config, tags={"not ! allowed": "a"}), "finished")
    logged(folder, range(2))
    with sending(folder):
        pass
    warnings = capsys.readouterr().err
    assert warnings.count("refused tags") == 1
    run = runs_of(config)["pretrain"]
    assert (steps_of(config, run, "train/loss"), run.info.status) == ([0, 1], "FINISHED")
    assert not send(folder)


def test_a_folder_that_cannot_be_read_holds_up_no_other(
    config: TrackingConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, old, torn, good = (tmp_path / name for name in ("bad", "old", "torn", "good"))
    for folder in (bad, old, torn, good):
        opened(folder, record(config, key=folder.name, name=folder.name), "finished")
    (bad / RUNS_NAME).write_text("{")
    (old / RUNS_NAME).write_text('{"name": "pretrain"}')
    (torn / "metrics.jsonl").write_text("{}\n")
    assert send_all([bad, old, torn, good]) == [bad, old, torn]
    assert capsys.readouterr().err.count("was not sent") == 3
    assert runs_of(config)["good"].info.status == "FINISHED"


def test_a_server_that_is_away_is_one_warning_and_gets_everything_later(
    config: TrackingConfig, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ada")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "pa55")
    content = opened(folder, record(dataclasses.replace(config, uri="http://127.0.0.1:9")))
    with sending(folder):
        logged(folder, range(3))
        finish(folder, content)
    output = capsys.readouterr()
    assert output.err.count("warning:") == 1
    assert str(folder) in output.err and "bertline send" in output.err
    assert "pa55" not in output.err + output.out
    content.tracking = config  # it is back: here, another store stands for it
    write_tracked_runs(folder, content)
    assert send(folder)
    assert steps_of(config, runs_of(config)["pretrain"], "train/loss") == [0, 1, 2]


def test_records_are_sent_while_the_block_runs_and_after_it(
    config: TrackingConfig, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("_EVERY_S", "_AFTER_ERROR_S"):
        monkeypatch.setattr(sending_module, name, 0.02)
    content = opened(folder, record(config))
    log_batch, lost = MlflowClient.log_batch, threading.Event()

    def unreliable(*arguments: Any, **named: Any) -> None:
        if lost.is_set():
            raise ConnectionError("lost")
        log_batch(*arguments, **named)

    monkeypatch.setattr(MlflowClient, "log_batch", unreliable)
    with pytest.raises(ZeroDivisionError), sending(folder):
        logged(folder, range(1))
        wait_until(lambda: "pretrain" in runs_of(config) and runs_of(config)["pretrain"].data.metrics)
        lost.set()
        logged(folder, range(1, 2))
        wait_until(lambda: "takes no records now (lost)" in capsys.readouterr().out)
        lost.clear()
        logged(folder, range(2, 3))
        write_tracked_runs(folder, content)
        set_state(folder, "failed")
        raise ZeroDivisionError
    run = runs_of(config)["pretrain"]
    assert steps_of(config, run, "train/loss") == [0, 1, 2]
    assert run.info.status == "FAILED"
    assert capsys.readouterr().err == ""


def test_a_server_that_never_answers_does_not_keep_a_stage(
    config: TrackingConfig, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sending_module, "_LONGEST_END_S", 0.5)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "600")
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:  # the system itself takes the connections
        opened(folder, record(dataclasses.replace(config, uri=f"http://127.0.0.1:{silent.getsockname()[1]}")))
        started = time.monotonic()
        with sending(folder):
            pass
        assert time.monotonic() - started < 300
    assert "it does not answer" in capsys.readouterr().err
