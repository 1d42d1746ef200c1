"""Addresses of pages in the MLflow UI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bertline.tracking.config import TrackingConfig
from bertline.tracking.registry import prepared_pages
from bertline.tracking.store import Point, Store
from bertline.tracking.tracked_runs import PARENT_TAG, TRIAL_TAG

SERVER = "http://127.0.0.1:5000"
NAMES = {"prefix": "bertline-", "champion": "champion"}


def shown(config: TrackingConfig) -> dict[str, Any]:
    """The views by title, each as the parts of the address after the hash."""
    return {title: urlsplit(urlsplit(address).fragment) for title, address in prepared_pages(config, SERVER, **NAMES)}


def make(store: Store, name: str, tags: dict[str, str], *points: Point, start_s: float = 1.0) -> str:
    """Create a run with values of metrics; returns its id."""
    run = store.create_run(name, tags, start_s=start_s)
    run.log_points(points)
    return run.id


def test_an_empty_store_has_its_runs_and_models_to_show(config: TrackingConfig) -> None:
    pages = shown(config)
    assert list(pages) == ["all runs", "models"]
    assert pages["models"].path.startswith("/experiments/"), "the registry's list opens in the mode of GenAI"


def test_the_columns_of_all_runs_are_the_scores_of_pipelines_on_test(config: TrackingConfig) -> None:
    store = Store(config.uri, config.experiment_name)
    for number, keys in enumerate((["a/accuracy", "a/dev_accuracy"], ["val/mlm_loss", "b/f1"])):
        make(store, "p", {"bertline.pipeline_key": str(number)}, *((key, 0.5, 1.0, 0) for key in keys))
    make(store, "pretrain", {"bertline.stage": "pretrain"}, ("perf/mfu", 0.5, 1.0, 0))
    (key,) = parse_qs(shown(config)["all runs"].query)["viewStateShareKey"]
    view = json.loads(store.client.get_experiment(store.experiment_id).tags[f"mlflow.sharedViewState.{key}"])
    assert view == {
        "selectedColumns": [f"metrics.`{key}`" for key in ("a/accuracy", "b/f1", "val/mlm_loss")],
        "searchFilter": "",
    }


def test_the_newest_report_is_shown_and_no_pipeline_without_one(config: TrackingConfig, tmp_path: Path) -> None:
    store = Store(config.uri, config.experiment_name)
    (tmp_path / "report.html").write_text("<p>report")
    pipelines = [make(store, str(number), {"bertline.pipeline_key": str(number)}) for number in range(3)]
    for number, pipeline in enumerate(pipelines):
        make(store, "e", {PARENT_TAG: pipeline, "bertline.stage": "evaluate"}, start_s=number + 1)
    assert "newest report" not in shown(config)
    for pipeline in pipelines[:2]:
        store.client.log_artifact(pipeline, str(tmp_path / "report.html"))
    page = shown(config)["newest report"]
    assert page.path == f"/experiments/{store.experiment_id}/runs/{pipelines[1]}/artifacts/report.html"


def test_the_trials_of_the_newest_sweep_are_compared(config: TrackingConfig) -> None:
    store = Store(config.uri, config.experiment_name)
    for number in (1, 2):
        sweep = make(store, "s", {"bertline.stage": "sweep@reviews"}, start_s=number)
        identities = ("encoder/trial/0", "encoder/trial/1", "random_weights/trial/0", "encoder/seed/0")
        score = ("score", 0.5, 1.0, 0)
        trials = [make(store, "t", {PARENT_TAG: sweep, TRIAL_TAG: one}, score, start_s=number) for one in identities]
    query = parse_qs(shown(config)["trials of sweep@reviews"].query)
    assert set(json.loads(query["runs"][0])) == set(trials[:2])
    assert query["workflowType"] == ["machine_learning"]


def test_a_task_with_a_champion_has_a_page_for_it(config: TrackingConfig, tmp_path: Path) -> None:
    names = {**NAMES, "prefix": "of-views-"}  # the registry is one for all tests
    client = Store(config.uri, config.experiment_name).client
    for task, num_versions in (("reviews", 2), ("topics", 1)):
        client.create_registered_model(f"of-views-{task}")
        for _ in range(num_versions):
            client.create_model_version(f"of-views-{task}", str(tmp_path))
    client.set_registered_model_alias("of-views-reviews", "champion", "2")
    client.set_registered_model_alias("of-views-topics", "current", "1")
    found = {title: url for title, url in prepared_pages(config, SERVER, **names) if "best" in title}
    assert found == {
        "best model of reviews": f"{SERVER}/#/models/of-views-reviews/versions/2?workflowType=machine_learning"
    }
