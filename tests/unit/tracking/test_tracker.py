"""Tracking against a real SQLite store."""

import dataclasses
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts

import tracking_processes
from bertline.foundation.files import write_atomically
from bertline.foundation.metrics_log import MetricsLog
from bertline.tracking import outbox
from bertline.tracking.config import TrackingConfig
from bertline.tracking.mlflow_tracker import MlflowTracker
from bertline.tracking.store import PARENT_TAG, _only_one
from bertline.tracking.tracker import TrackedRun, Tracker, open_tracker
from fork_server import forking
from serving_inputs import serving

NO_INPUTS: dict[str, tuple[Path, str]] = {}


def pipeline(config: TrackingConfig, **changes: Any) -> Tracker:
    return open_tracker(config, **{"pipeline_key": "pipeline-1", "tags": {}, "params": {}, **changes})


def stage(tracker: Tracker, name: str = "pretrain", **changes: Any) -> Any:
    return tracker.stage(name, **{"key": "key-1", "params": {}, "tags": {}, "inputs": NO_INPUTS, **changes})


def runs_of(config: TrackingConfig) -> dict[str, Any]:
    """All runs of the test's experiment by name; fails where two have one name."""
    client = MlflowClient(config.uri)
    experiment = client.get_experiment_by_name(config.experiment_name)
    runs = client.search_runs([experiment.experiment_id])
    assert len({run.info.run_name for run in runs}) == len(runs)
    return {run.info.run_name: run for run in runs}


def steps_of(config: TrackingConfig, run_id: str, key: str) -> list[int]:
    return [metric.step for metric in MlflowClient(config.uri).get_metric_history(run_id, key)]


def test_a_line_has_one_run_with_its_stages_nested_in_it(config: TrackingConfig, metrics_file: Path) -> None:
    inputs = {"examples": (Path("artifacts/examples"), "0123456789abcdef0123456789abcdef.dir")}
    with pipeline(config, tags={"git.commit": "abc"}, params={"model": {"hidden_size": 128}}) as tracker:
        MetricsLog(metrics_file).log(10, {"train/loss": 2.0})
        with stage(tracker, params={"lr": 0.1}, tags={"a": "b"}, inputs=inputs) as run:
            run.follow(metrics_file)
            run.log_metrics({"val/mlm_loss": 1.5})
            run.set_tags({"output": "sha"})
        tracker.log_metrics({"pretrain/val/mlm_loss": 1.5})
    runs = runs_of(config)
    whole, part = runs["pipeline pipeline-1"], runs["pretrain"]
    assert (whole.info.status, part.info.status) == ("FINISHED", "FINISHED")
    assert part.data.tags[PARENT_TAG] == whole.info.run_id
    assert whole.data.params == {"model.hidden_size": "128"}
    assert whole.data.tags["git.commit"] == "abc"
    assert part.data.params == {"lr": "0.1"}
    assert part.data.metrics == {"train/loss": 2.0, "val/mlm_loss": 1.5}
    assert (part.data.tags["a"], part.data.tags["output"]) == ("b", "sha")
    (dataset,) = part.inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.dataset.digest) == ("examples", "0123456789abcdef0123456789abcdef.dir")


def test_a_stage_run_again_continues_its_run_and_shows_one_clean_curve(
    config: TrackingConfig, metrics_file: Path
) -> None:
    log = MetricsLog(metrics_file)
    for steps, error in ((range(5), KeyboardInterrupt), (range(5, 10), None), (range(0), None)):
        for step in steps:
            log.log(step, {"train/loss": 1 / (step + 1)})
        try:
            with pipeline(config) as tracker, stage(tracker) as run:
                run.follow(metrics_file)
                if error is not None:
                    raise error
        except KeyboardInterrupt:
            assert runs_of(config)["pretrain"].info.status == "KILLED"
    run = runs_of(config)["pretrain"]
    assert run.info.status == "FINISHED"
    assert steps_of(config, run.info.run_id, "train/loss") == list(range(10))


@pytest.mark.usefixtures("fork_server")
def test_a_process_killed_while_feeding_leaves_a_run_that_the_next_one_completes(
    config: TrackingConfig, metrics_file: Path
) -> None:
    log = MetricsLog(metrics_file)
    for step in range(30):
        log.log(step, {"a": step})
    process = forking().Process(target=tracking_processes.send_some_and_die, args=(config, metrics_file, 17))
    process.start()
    process.join()
    assert process.exitcode == 9
    assert runs_of(config)["pretrain"].info.status == "RUNNING"
    with pipeline(config) as tracker, stage(tracker) as run:
        run.follow(metrics_file)
    run = runs_of(config)["pretrain"]
    assert steps_of(config, run.info.run_id, "a") == list(range(30))
    assert run.info.status == "FINISHED"


def test_an_unfinished_stage_is_taken_over_by_the_next_pipeline(config: TrackingConfig) -> None:
    with pytest.raises(KeyboardInterrupt), pipeline(config) as tracker, stage(tracker):
        raise KeyboardInterrupt
    with pipeline(config, pipeline_key="pipeline-2") as tracker, stage(tracker):
        pass
    runs = runs_of(config)
    assert runs["pretrain"].data.tags[PARENT_TAG] == runs["pipeline pipeline-2"].info.run_id


def test_another_key_is_another_run(config: TrackingConfig) -> None:
    ids = []
    for key in ("key-1", "key-2"):
        with pipeline(config) as tracker, stage(tracker, key=key) as run:
            pass
        ids.append(run.run_id)
    assert ids[0] != ids[1]


def test_an_error_fails_the_stage_and_the_pipeline(config: TrackingConfig) -> None:
    with pytest.raises(ValueError), pipeline(config) as tracker, stage(tracker):
        raise ValueError("wrong")
    assert {run.info.status for run in runs_of(config).values()} == {"FAILED"}


def test_a_headline_figure_is_never_one_more_point_on_a_curve(config: TrackingConfig, metrics_file: Path) -> None:
    MetricsLog(metrics_file).log(10, {"perf/tokens_per_s": 900.0})
    with pipeline(config) as tracker, stage(tracker) as run:
        run.follow(metrics_file)
        run.log_metrics({"perf/tokens_per_s": 850.0, "steps": 10})
    found = runs_of(config)["pretrain"]
    assert found.data.metrics == {"perf/tokens_per_s": 900.0, "final/perf/tokens_per_s": 850.0, "steps": 10.0}
    assert steps_of(config, found.info.run_id, "perf/tokens_per_s") == [10]


def test_a_figure_told_again_is_replaced_not_doubled(config: TrackingConfig) -> None:
    for value in (1.0, 1.0, 2.0):
        with pipeline(config) as tracker:
            tracker.log_metrics({"score": value})
    run = runs_of(config)["pipeline pipeline-1"]
    assert run.data.metrics == {"score": 2.0}
    assert steps_of(config, run.info.run_id, "score") == [0, 1]


def test_more_parameters_than_a_batch_holds_are_all_there(config: TrackingConfig) -> None:
    params = {f"p{number}": number for number in range(230)} | {"long": "x" * 9_000}
    for _ in range(2):
        with pipeline(config, params=params):
            pass
    logged = runs_of(config)["pipeline pipeline-1"].data.params
    assert len(logged) == 231
    assert "cut, 9000 characters" in logged["long"]


def event(number: int, state: str = "COMPLETE", **changes: Any) -> str:
    content = {"arm": "encoder", "kind": "trial", "number": number, "state": state, "params": {"lr": 0.1}}
    content |= {"metrics": {"dev/accuracy": 0.5}, "curve": [[0.5, 0.4], [1.0, 0.5]], "time_s": 3.0}
    return json.dumps(content | changes) + "\n"


def test_trials_become_nested_runs_once_each_with_their_state(config: TrackingConfig, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(event(0) + event(1, "PRUNED") + event(2, "FAIL", metrics={}, curve=[]))
    for more in ("", event(0, kind="seed", metrics={"dev/accuracy": 0.5, "test/accuracy": 0.6})):
        with path.open("a") as handle:
            handle.write(more)
        with pipeline(config) as tracker, stage(tracker, "sweep") as run:
            run.follow_events(path)
    runs = runs_of(config)
    states = {name: found.info.status for name, found in runs.items() if name.startswith("encoder")}
    assert states == {
        "encoder · trial 0": "FINISHED",
        "encoder · trial 1": "KILLED",
        "encoder · trial 2": "FAILED",
        "encoder · seed 0": "FINISHED",
    }
    trial = runs["encoder · trial 0"]
    assert trial.data.tags[PARENT_TAG] == runs["sweep"].info.run_id
    assert trial.data.params == {"lr": "0.1"}
    assert steps_of(config, trial.info.run_id, "dev/score_by_percent") == [50, 100]
    assert runs["encoder · trial 1"].data.tags["optuna.state"] == "PRUNED"
    assert runs["encoder · seed 0"].data.metrics["test/accuracy"] == 0.6


def test_a_trial_half_recorded_by_a_dead_feeder_is_completed(config: TrackingConfig, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(event(0))
    with pipeline(config) as tracker, stage(tracker, "sweep") as run:
        assert tracker.outbox.flush()
        half = tracker.store.create_run(
            "encoder · trial 0", {PARENT_TAG: run.run_id, "bertline.trial": "encoder/trial/0"}
        )
        tracker.store.log_points(half, [("dev/score_by_percent", 0.4, 1.0, 50)])
        run.follow_events(path)
    trial = runs_of(config)["encoder · trial 0"]
    assert trial.info.run_id == half
    assert trial.info.status == "FINISHED"
    assert steps_of(config, half, "dev/score_by_percent") == [50, 100]


def test_the_load_of_every_node_is_on_the_stage_run_each_sample_once(config: TrackingConfig, tmp_path: Path) -> None:
    config = dataclasses.replace(config, system_metrics=True)
    for asked in (True, True, False):  # a run that is opened again sends nothing twice
        with pipeline(dataclasses.replace(config, system_metrics=asked)) as tracker, stage(tracker) as run:
            run.follow_load(tmp_path)
            tracker.outbox.flush()
            for node in ("gpu1", "gpu2"):  # files that come while they are followed
                log = MetricsLog(tmp_path / f"system.{node}.jsonl")
                for step in range(3 if asked else 9):
                    log.keep_up_to(step - 1)
                    log.log(step, {f"system/{node}/cpu_utilization_percentage": 50.0 + step})
                log.close()
    run_id = runs_of(config)["pretrain"].info.run_id
    for node in ("gpu1", "gpu2"):
        assert steps_of(config, run_id, f"system/{node}/cpu_utilization_percentage") == [0, 1, 2]


def test_a_registered_folder_comes_back_as_it_was_and_twice_is_one_version(
    config: TrackingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", config.uri)
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", config.uri)
    folder = tmp_path / "encoder"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "bert"}')
    name = "registered-encoder"
    how: dict[str, Any] = {"alias": "champion", "serving": serving()}
    with pipeline(config) as tracker:
        versions = [tracker.register(name, folder, tags={"score": "1"}, **how) for _ in range(2)]
        (folder / "config.json").write_text('{"model_type": "bert", "better": true}')
        versions.append(tracker.register(name, folder, tags={}, **how))
    assert versions == ["1", "1", "2"]
    client = MlflowClient(config.uri)
    assert client.get_model_version_by_alias(name, "champion").version in ("2", 2)
    back = download_artifacts(f"models:/{name}@champion", dst_path=str(tmp_path / "back"))
    assert (Path(back) / "config.json").read_text() == (folder / "config.json").read_text()


def test_artifacts_lie_beside_the_database_and_never_in_the_current_folder(
    config: TrackingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    shutil.copy(config.uri.removeprefix("sqlite:///"), "runs/mlflow.db")  # made already, which is slow
    config = dataclasses.replace(config, uri="sqlite:///runs/mlflow.db")
    report = tmp_path / "report.html"
    report.write_text("hello")
    with pipeline(config) as tracker:
        tracker.log_artifact(report, contains_text=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "runs"]
    assert [path.read_text() for path in (tmp_path / "runs" / "mlartifacts").rglob("report.html")] == ["hello"]


@pytest.mark.usefixtures("no_locks")
def test_a_local_database_is_opened_on_a_file_system_without_locks(tmp_path: Path) -> None:
    with _only_one(f"sqlite:///{tmp_path}/folder/mlflow.db"):
        assert (tmp_path / "folder").is_dir()


def test_disabled_tracking_records_nothing_and_does_not_import_mlflow(
    config: TrackingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "mlflow", None)  # importing it would fail
    monkeypatch.delitem(sys.modules, "bertline.tracking.mlflow_tracker", raising=False)
    disabled = dataclasses.replace(config, enabled=False, uri="sqlite:///never/made.db")
    with open_tracker(disabled, pipeline_key="k", tags={}, params={}) as tracker:
        with tracker.stage("pretrain", key="k", params={}, tags={}, inputs={}) as run:
            run.follow(Path("metrics.jsonl"))
            run.log_metrics({"a": 1.0})
            run.log_artifact(Path("report.html"), contains_text=True)
        assert tracker.register("name", Path("folder"), alias="champion", tags={}, serving=serving()) is None
    assert not Path("never").exists()


def test_an_unreachable_server_is_one_warning_and_the_work_goes_on(
    config: TrackingConfig, metrics_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Port 9 (discard) is closed on any machine these tests run on; the password must not be shown.
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ada")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "pa55")
    config = dataclasses.replace(config, uri="http://127.0.0.1:9")
    MetricsLog(metrics_file).log(1, {"a": 1.0})
    with pipeline(config) as tracker, stage(tracker) as run:
        run.follow(metrics_file)
        worked = True
    errors = capsys.readouterr().err
    assert worked
    assert errors.count("cannot be reached") == 1
    assert "pa55" not in errors


def test_the_users_text_stays_here_unless_allowed(
    config: TrackingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertline.tracking.mlflow_tracker.is_local", lambda uri: False)
    for name in ("report.html", "curves.csv"):
        (tmp_path / name).write_text("x")
    params = {"pretrain": {"mask_predictions": {"sentences": ["mine [MASK]"]}}}
    for allowed in (False, True):
        key = f"text-{allowed}"
        with pipeline(dataclasses.replace(config, log_text=allowed), pipeline_key=key, params=params) as tracker:
            tracker.log_artifact(tmp_path / "report.html", contains_text=True)
            tracker.log_artifact(tmp_path / "curves.csv", contains_text=False)
        run = runs_of(config)[f"pipeline {key}"]
        names = {file.path for file in MlflowClient(config.uri).list_artifacts(run.info.run_id)}
        assert names == ({"report.html", "curves.csv"} if allowed else {"curves.csv"})
        assert ("pretrain.mask_predictions.sentences" in run.data.params) is allowed


def test_the_configuration_is_attached_without_the_users_sentences_where_text_must_stay_home(
    config: TrackingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {"pretrain": {"seed": 1, "mask_predictions": {"sentences": ["mine [MASK]"], "every_steps": 5}}}
    for local, expected in ((True, whole), (False, {"pretrain": {"seed": 1, "mask_predictions": {"every_steps": 5}}})):
        monkeypatch.setattr("bertline.tracking.mlflow_tracker.is_local", lambda uri, local=local: local)
        with pipeline(config, pipeline_key=f"local-{local}") as tracker:
            tracker.log_config(whole)
        run = runs_of(config)[f"pipeline local-{str(local)[:4]}"]
        assert yaml.safe_load(attached_text(config, run.info.run_id, "config.yaml") or "") == expected


def test_a_table_has_the_first_rows_and_is_not_doubled_when_the_stage_is_run_again(
    config: TrackingConfig, tmp_path: Path
) -> None:
    path = tmp_path / "predictions.parquet"
    pq.write_table(pa.table({"text": ["a", "b", "c"], "correct": [True, False, False]}), path)
    for _ in range(2):
        with pipeline(config) as tracker, stage(tracker) as run:
            run.log_table(path, "predictions", num_rows=2, contains_text=False)
            run.log_table(path, "errors", wrong_only=True, contains_text=False)
    tables = {name: attached_text(config, run.run_id, f"{name}.json") for name in ("predictions", "errors")}
    assert json.loads(tables["predictions"] or "")["data"] == [["a", True], ["b", False]]
    assert json.loads(tables["errors"] or "")["data"] == [["b", False], ["c", False]]
    assert "errors.json" in runs_of(config)["pretrain"].data.tags["mlflow.loggedArtifacts"]


def attached_text(config: TrackingConfig, run_id: str | None, name: str) -> str | None:
    """What an attached file says; None before there is one."""
    if run_id is None or name not in [file.path for file in MlflowClient(config.uri).list_artifacts(run_id)]:
        return None
    return Path(download_artifacts(f"runs:/{run_id}/{name}", tracking_uri=config.uri)).read_text()


def test_a_followed_file_is_attached_while_it_is_written_and_again_at_the_end(
    config: TrackingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "_POLL_S", 0.05)
    path = tmp_path / "mask_predictions.txt"
    with pipeline(config) as tracker:
        with stage(tracker) as run:
            run.follow_artifact(path, contains_text=False)
            for content in ("step 0", "step 0 and 10"):
                write_atomically(path, content)
                deadline = time.monotonic() + 600
                while attached_text(config, run.run_id, path.name) != content:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
            write_atomically(path, "all steps")
        assert attached_text(config, run.run_id, path.name) == "all steps"


def test_a_followed_file_with_text_stays_home_where_text_must(
    config: TrackingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertline.tracking.mlflow_tracker.is_local", lambda uri: False)
    (tmp_path / "mine.txt").write_text("my sentence")
    for allowed in (False, True):
        with (
            pipeline(dataclasses.replace(config, log_text=allowed), pipeline_key=f"pipeline-{allowed}") as tracker,
            stage(tracker, key=f"key-{allowed}") as run,
        ):
            run.follow_artifact(tmp_path / "mine.txt", contains_text=True)
        assert (attached_text(config, run.run_id, "mine.txt") is not None) is allowed


def test_the_base_run_and_tracker_accept_every_call_a_recipe_makes() -> None:
    for name in (
        "follow",
        "follow_artifact",
        "follow_events",
        "log_metrics",
        "log_artifact",
        "log_table",
        "set_tags",
    ):
        assert callable(getattr(TrackedRun(), name))
    assert issubclass(MlflowTracker, Tracker)
