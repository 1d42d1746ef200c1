"""Addresses of pages in the MLflow UI that answer what people come for, with the runs that they show."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from bertline.tracking.config import TrackingConfig
from bertline.tracking.store import Store
from bertline.tracking.tracked_runs import PARENT_TAG, PIPELINE_KEY_TAG, STAGE_TAG, TRIAL_TAG

REPORT = "report.html"
_RUNS = 10
"""Most pipelines or pretrainings on one page, the newest ones."""
_TRIALS = 100
_SCORES = "scores"
# MLflow opens on pages for language-model traces unless the address or a switch, which each browser keeps for itself,
# says otherwise: no tag of an experiment decides it (3.17).
_WORKFLOW = {"workflowType": "machine_learning"}


class View(NamedTuple):
    """A page of the MLflow UI."""

    title: str
    address: str


def prepared_views(config: TrackingConfig, server: str, *, prefix: str, champion: str) -> list[View]:
    """Return the pages that show something: the newest report, pipelines compared, pretraining curves, the best model
    of each task, its trials, those of them that failed, all models.

    Args:
        prefix: What stands before the name of the task in that of its registered model: `bertline-`.
        champion: Alias of the best version of a task.
    """
    store = Store(config.uri, config.experiment_name)
    return [View(title, f"{server}/#/{page}") for title, page in _pages(store, prefix, champion)]


def _pages(store: Store, prefix: str, champion: str) -> Iterator[tuple[str, str]]:
    experiment = store.experiment_id()
    runs = store.find_runs({})[::-1]  # newest first
    # The columns of all runs: MLflow's own are hashes of data; others it keeps in each browser, or in this tag.
    newest = [run for run in runs if PIPELINE_KEY_TAG in run.data.tags][:_RUNS]
    scores = sorted({key for run in newest for key in run.data.metrics if "/dev_" not in key})
    # Without a filter of its own, the page would keep the one that was last used.
    view = {"selectedColumns": [f"metrics.`{key}`" for key in scores], "searchFilter": ""}
    store.client.set_experiment_tag(experiment, f"mlflow.sharedViewState.{_SCORES}", json.dumps(view))
    yield "all runs", f"experiments/{experiment}/runs?{_query({'viewStateShareKey': _SCORES, **_WORKFLOW})}"
    if (reported := _reported(store, runs)) is not None:
        yield "newest report", f"experiments/{experiment}/runs/{reported}/artifacts/{REPORT}?{_query(_WORKFLOW)}"
    # What has no score draws no line, and takes away those of the others: the page compares what all have.
    pipelines = [run.info.run_id for run in runs if PIPELINE_KEY_TAG in run.data.tags and run.data.metrics][:_RUNS]
    if len(pipelines) > 1:
        yield "pipelines compared", f"compare-runs?{_runs(pipelines, experiment)}"
    if pretrainings := [run for run in runs if run.data.tags.get(STAGE_TAG) == "pretrain"][:_RUNS]:
        losses = sorted(key for key in pretrainings[0].data.metrics if key.startswith("val/") and key.endswith("_loss"))
        if losses:
            shown = {"metric": json.dumps(losses[0]), "plot_metric_keys": json.dumps(losses[:1]), "x_axis": "step"}
            ids = [run.info.run_id for run in pretrainings]
            yield "pretraining curves", f"metric?{_runs(ids, experiment)}&{_query(shown)}"
    for model in store.client.search_registered_models(f"name LIKE '{prefix}%'", order_by=["name ASC"]):
        if (version := model.aliases.get(champion)) is not None:
            title = f"best model of {model.name.removeprefix(prefix)}"
            yield title, f"models/{model.name}/versions/{version}?{_query(_WORKFLOW)}"
    staged = [(run.data.tags.get(STAGE_TAG, ""), run.info.run_id) for run in reversed(runs)]
    newest_sweeps = {name: sweep for name, sweep in staged if name.startswith("sweep@")}
    for name, sweep in sorted(newest_sweeps.items()):
        trials = [run for run in runs if run.data.tags.get(PARENT_TAG) == sweep and TRIAL_TAG in run.data.tags]
        scored = [run for run in trials if run.data.metrics]
        encoder_trials = [run.info.run_id for run in scored if run.data.tags[TRIAL_TAG].startswith("encoder/trial/")]
        if len(encoder_trials) > 1:
            yield f"trials of {name}", f"compare-runs?{_runs(encoder_trials[:_TRIALS], experiment)}"
        if any(run.info.status == "FAILED" for run in trials):
            failed = f"attributes.status = 'FAILED' AND tags.`{PARENT_TAG}` = '{sweep}'"
            # In the order of their dates, which is the page's own, trials would be folded away below their sweep.
            order = {"orderByKey": "tags.`mlflow.runName`", "orderByAsc": "true"}
            shown = {"searchFilter": failed, **order, **_WORKFLOW}
            yield f"failed trials of {name}", f"experiments/{experiment}/runs?{_query(shown)}"
    # Not the registry's list, which drops the workflow from its address and then shows the browser's, at first GenAI.
    yield "models", f"experiments/{experiment}/models?{_query(_WORKFLOW)}"


def _reported(store: Store, newest_first: list[Any]) -> str | None:
    """Return the newest pipeline's run that has a report."""
    evaluated = (run for run in newest_first if run.data.tags.get(STAGE_TAG) == "evaluate")
    for run in islice(evaluated, _RUNS):
        pipeline = run.data.tags[PARENT_TAG]
        if REPORT in {file.path for file in store.client.list_artifacts(pipeline)}:
            return str(pipeline)
    return None


def _runs(ids: list[str], experiment: str) -> str:
    return _query({"runs": json.dumps(ids), "experiments": json.dumps([experiment]), **_WORKFLOW})


def _query(values: dict[str, str]) -> str:
    return urlencode(values, quote_via=quote)
