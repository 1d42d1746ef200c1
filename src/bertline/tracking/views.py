"""Addresses of pages in the MLflow UI that answer what people come for, with the runs that they show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from bertline.tracking.config import TrackingConfig
from bertline.tracking.mlflow_tracker import PIPELINE_KEY_TAG, STAGE_TAG
from bertline.tracking.store import PARENT_TAG, Store

_RUNS = 10
"""Most pipelines or pretrainings on one page, the newest ones."""
_TRIALS = 100
# MLflow opens on pages for language-model traces unless the address or a switch, which each browser keeps for itself,
# says otherwise: no tag of an experiment decides it (3.17).
_WORKFLOW = {"workflowType": "machine_learning"}


class View(NamedTuple):
    """A page of the MLflow UI."""

    title: str
    address: str


def prepared_views(config: TrackingConfig, server: str) -> list[View]:
    """Return the pages that show something: pipelines compared, pretraining curves, trials of each task, models.

    Args:
        config: Tracking section; its store is read.
        server: Address of the UI, such as `http://127.0.0.1:5000`.
    """
    store = Store(config.uri, config.experiment_name)
    return [View(title, f"{server}/#/{page}") for title, page in _pages(store)]


def _pages(store: Store) -> Iterator[tuple[str, str]]:
    experiment = store.experiment_id()
    yield "all runs", f"experiments/{experiment}/runs?{_query(_WORKFLOW)}"
    runs = store.find_runs({})[::-1]  # newest first
    pipelines = [run.info.run_id for run in runs if PIPELINE_KEY_TAG in run.data.tags][:_RUNS]
    if len(pipelines) > 1:
        yield "pipelines compared", f"compare-runs?{_runs(pipelines, experiment)}"
    if pretrainings := [run for run in runs if run.data.tags.get(STAGE_TAG) == "pretrain"][:_RUNS]:
        losses = sorted(key for key in pretrainings[0].data.metrics if key.startswith("val/") and key.endswith("_loss"))
        if losses:
            shown = {"metric": json.dumps(losses[0]), "plot_metric_keys": json.dumps(losses[:1]), "x_axis": "step"}
            ids = [run.info.run_id for run in pretrainings]
            yield "pretraining curves", f"metric?{_runs(ids, experiment)}&{_query(shown)}"
    for name, trials in _trials_by_sweep(runs).items():
        yield f"trials of {name}", f"compare-runs?{_runs(trials[:_TRIALS], experiment)}"
    yield "models", f"models?{_query(_WORKFLOW)}"


def _trials_by_sweep(newest_first: list[Any]) -> dict[str, list[str]]:
    """Return the runs of the encoder's trials of the newest sweep of each task."""
    sweeps: dict[str, str] = {}
    for run in newest_first:
        if (name := run.data.tags.get(STAGE_TAG, "")).startswith("sweep@"):
            sweeps.setdefault(name, run.info.run_id)
    found: dict[str, list[str]] = {}
    for name, sweep in sorted(sweeps.items()):
        trials = [
            run.info.run_id
            for run in newest_first
            if run.data.tags.get(PARENT_TAG) == sweep
            and (run.data.tags.get("bertline.arm"), run.data.tags.get("bertline.kind")) == ("encoder", "trial")
        ]
        if len(trials) > 1:
            found[name] = trials
    return found


def _runs(ids: list[str], experiment: str) -> str:
    return _query({"runs": json.dumps(ids), "experiments": json.dumps([experiment]), **_WORKFLOW})


def _query(values: dict[str, str]) -> str:
    return urlencode(values, quote_via=quote)
