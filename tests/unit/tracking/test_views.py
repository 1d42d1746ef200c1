"""Addresses of pages in the MLflow UI."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

from bertline.tracking.config import TrackingConfig
from bertline.tracking.store import PARENT_TAG, Store
from bertline.tracking.views import prepared_views

SERVER = "http://127.0.0.1:5000"


def test_an_empty_store_has_its_runs_and_models_to_show(config: TrackingConfig) -> None:
    assert [view.title for view in prepared_views(config, SERVER)] == ["all runs", "models"]


def test_views_show_the_newest_pipelines_pretrainings_and_trials(config: TrackingConfig) -> None:
    store = Store(config.uri, config.experiment_name)
    made: dict[str, str] = {}
    for number in (1, 2):
        line = store.create_run("line", {"bertline.pipeline_key": f"key-{number}"}, start_s=number)
        made[f"line {number}"] = line
        stage = {PARENT_TAG: line, "bertline.stage": "pretrain"}
        made[f"pretrain {number}"] = store.create_run("pretrain", stage, start_s=number)
        store.log_points(made[f"pretrain {number}"], [("val/mlm_loss", 3.0, 1.0, 10), ("val/nsp_loss", 0.5, 1.0, 10)])
        sweep = store.create_run("s", {PARENT_TAG: line, "bertline.stage": "sweep@reviews"}, start_s=number)
        for arm, kind in (("encoder", "trial"), ("encoder", "trial"), ("random_weights", "trial"), ("encoder", "seed")):
            trial = {PARENT_TAG: sweep, "bertline.arm": arm, "bertline.kind": kind}
            made.setdefault(f"trials {number}", "")
            made[f"trials {number}"] += f"{store.create_run('t', trial, start_s=number)} "
    shown = {view.title: urlsplit(urlsplit(view.address).fragment) for view in prepared_views(config, SERVER)}
    runs = {title: json.loads(parse_qs(page.query).get("runs", ["[]"])[0]) for title, page in shown.items()}
    assert runs["pipelines compared"] == [made["line 2"], made["line 1"]]
    assert runs["pretraining curves"] == [made["pretrain 2"], made["pretrain 1"]]
    assert json.loads(parse_qs(shown["pretraining curves"].query)["plot_metric_keys"][0]) == ["val/mlm_loss"]
    assert set(runs["trials of sweep@reviews"]) == set(made["trials 2"].split()[:2])
    experiment = store.experiment_id()
    assert all(json.loads(parse_qs(page.query).get("experiments", [json.dumps([experiment])])[0]) == [experiment]
               for page in shown.values())  # fmt: skip
    assert all(parse_qs(page.query)["workflowType"] == ["machine_learning"] for page in shown.values())
