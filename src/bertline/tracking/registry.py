"""Model registry: versions of models, their champion, and the pages of MLflow that show them.
Imports MLflow.

A version is a folder of plain files. A new version of a task's model becomes champion if it beats
the current one beyond noise, on the same dev rows. Test is read only once: choosing by test scores
would turn it into a second dev set. If scores are not comparable, the champion stays, and users
move the alias by hand, in MLflow.
"""

import hashlib
import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

from bertline.foundation.files import read_json, sha256_of_path
from bertline.foundation.formats import shortened, signed, with_spread
from bertline.foundation.progress import say, warn
from bertline.foundation.verdicts import NOISE_UNKNOWN, Measured, compared
from bertline.tracking.config import TrackingConfig, first_line
from bertline.tracking.mlmodel import FORMAT, Serving, write_mlmodel
from bertline.tracking.sending import pipeline_run
from bertline.tracking.store import Store, dataset_inputs, metric_key
from bertline.tracking.tracked_runs import (
    NOTE_TAG,
    PARENT_TAG,
    PIPELINE_KEY_TAG,
    RUNS_NAME,
    STAGE_TAG,
    TRIAL_TAG,
    read_tracked_runs,
)

_CONTENT_TAG, _FORMAT_TAG, _STANDING_TAG = "bertline.content", "bertline.format", "bertline.standing"
_VERSIONS_TAG = "mlflow.modelVersions"
# The card contains measured latencies, which differ between runs.
_CARD = "README.md"
# Width of MLflow's columns for descriptions and for a model's tags.
_MAX_DESCRIPTION = 5000
_SCORES = ("metric", "dev_score", "dev_std", "test_score", "test_std")
REPORT = "report.html"
_RUNS, _TRIALS = 10, 100
"""Most pipelines, and most trials, on one page, the newest ones."""
# MLflow opens on pages for language-model traces unless the address or a switch, which each browser
# keeps for itself, says otherwise: no tag of an experiment decides it (3.17).
_WORKFLOW = {"workflowType": "machine_learning"}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Standing:
    """Scores of a version, and the data and metric that they belong to."""

    alias: str
    data_hash: str
    """Hash of the task's rows; scores on different rows are not comparable."""
    metric: str
    """Name of the metric; higher is better."""
    dev: Measured
    """Scores on dev over the seeds, and the contributions of blocks of dev rows."""
    test_score: float
    """Mean test score over the seeds, for display only."""
    test_std: float | None
    """Standard deviation of the test score over the seeds; None for a single seed."""

    def tags(self) -> dict[str, str]:
        """Return tags for the version, for display."""
        dev_std = statistics.stdev(self.dev.scores) if len(self.dev.scores) > 1 else None
        scores = {"dev_std": dev_std, "test_score": self.test_score, "test_std": self.test_std}
        return {
            "data_hash": self.data_hash,
            "metric": self.metric,
            "dev_score": str(self.dev.mean),
            **{name: str(value) for name, value in scores.items() if value is not None},
        }

    def to_json(self) -> dict[str, Any]:
        """Return the data with which later versions are compared."""
        return {"data_hash": self.data_hash, "metric": self.metric, "dev": self.dev.to_json()}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Registration:
    """How a folder is registered as a version of a model."""

    alias: str
    """Alias that always moves to this version."""
    tags: Mapping[str, str]
    """Tags of a new version."""
    serving: Serving
    standing: Standing | None = None
    """Scores of the version. The alias of the standing moves to this version if no version has it
    or this version beats the one that has it."""


def register(folder: Path, name: str, model: Path, registration: Registration) -> str | None:
    """Register a folder as a version of the model `name`, made by the pipeline of a run folder.

    Content that is already registered, ignoring the card, is not uploaded again; it gets the alias.
    The version is the folder itself (config, safetensors, tokenizer, model card) with an `MLmodel`,
    so that MLflow loads `models:/NAME@ALIAS`, and what it downloads is a folder that `transformers`
    and `bertline.load` can open. The card is the description.

    Returns:
        The version; None if tracking is disabled, or, with a warning, if the server did not take
        it.
    """
    if not (folder / RUNS_NAME).exists():
        return None
    try:
        runs = read_tracked_runs(folder)
        store = Store(runs.tracking.uri, runs.tracking.experiment_name)
        return _register(store, pipeline_run(store, runs).id, name, model, registration)
    except Exception as error:
        warn(f"{name} was not registered: {first_line(error)}")
        return None


def _register(store: Store, run_id: str, name: str, folder: Path, registration: Registration) -> str:
    client, standing = store.client, registration.standing
    content, description = _content_of(folder), _description_of(folder)
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    known = client.search_model_versions(f"name = '{name}'")
    own_tags = {_CONTENT_TAG: content, _FORMAT_TAG: FORMAT}
    same = [version for version in known if own_tags.items() <= version.tags.items()]
    tags = {**registration.tags, **own_tags, NOTE_TAG: description}
    version = str((same[0] if same else _new_version(store, run_id, name, folder, tags, registration)).version)
    client.update_model_version(name, version, description)
    client.update_registered_model(name, description)
    client.set_registered_model_alias(name, registration.alias, version)
    if standing is not None:
        wins, reason = _challenge(client, name, version, standing)
        place = f"standings/{name}-{version}.json"
        client.log_dict(run_id, standing.to_json(), place)
        for tag, value in {**standing.tags(), _STANDING_TAG: f"{run_id}/{place}"}.items():
            client.set_model_version_tag(name, version, tag, value)
        if wins:
            client.set_registered_model_alias(name, standing.alias, version)
        say(f"{name} version {version} {reason}")
    return version


def _new_version(
    store: Store, run_id: str, name: str, folder: Path, tags: Mapping[str, str], registration: Registration
) -> ModelVersion:
    """Log the folder as a model with its scores, and register it."""
    client, serving, standing = store.client, registration.serving, registration.standing
    model = client.create_logged_model(
        store.experiment_id, name=name, source_run_id=run_id, tags=tags, model_type="bertline"
    )
    with tempfile.TemporaryDirectory() as temporary:
        written = Path(temporary) / "model"
        write_mlmodel(folder, written, serving, model_id=model.model_id, run_id=run_id)
        client.log_model_artifacts(model.model_id, str(written))
    client.finalize_logged_model(model.model_id, "READY")
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
    if standing is not None and serving.dataset is not None:
        # The scores are linked to the rows that they were measured on. That on test has the name
        # that it has among the headline metrics of the pipeline.
        task, rows = serving.dataset
        (dataset,) = dataset_inputs({task: (rows, standing.data_hash)})
        client.log_inputs(run_id, [dataset])
        scores = {standing.metric: standing.test_score, f"dev_{standing.metric}": standing.dev.mean}
        measured_on = {"dataset_name": task, "dataset_digest": dataset.dataset.digest, "model_id": model.model_id}
        for score_name, score in scores.items():
            client.log_metric(run_id, f"{task}/{metric_key(score_name)}", score, **measured_on)
    created = client.create_model_version(
        name, model.artifact_location, run_id=run_id, tags=dict(tags), model_id=model.model_id
    )
    # By this tag MLflow lists the versions on the page of the model.
    versions = json.dumps([{"name": name, "version": int(created.version)}])
    client.set_logged_model_tags(model.model_id, {_VERSIONS_TAG: versions})
    return created


def _description_of(folder: Path) -> str:
    """Return the model card without its front matter, as much as fits MLflow's column; empty without
    one."""
    card = folder / _CARD
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    if text.startswith("---\n"):
        text = text.split("\n---\n", 1)[-1]
    return shortened(text.strip(), _MAX_DESCRIPTION)


def _content_of(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name != _CARD and not path.name.startswith("."):
            digest.update(f"{path.name}\0{sha256_of_path(path)}\n".encode())
    return digest.hexdigest()


def _challenge(client: MlflowClient, name: str, version: str, standing: Standing) -> tuple[bool, str]:
    """Return whether a version becomes the champion, and the reason, phrased to follow the
    version's name."""
    champion = client.get_registered_model(name).aliases.get(standing.alias)
    if champion is None:
        return challenged(standing, None)
    if str(champion) == version:
        return True, "is the champion already"
    known: dict[str, Any] = {}
    run_id, _, place = client.get_model_version(name, str(champion)).tags.get(_STANDING_TAG, "").partition("/")
    with tempfile.TemporaryDirectory() as folder:
        try:
            known = read_json(Path(client.download_artifacts(run_id, place, folder))) if place else {}
        except (MlflowException, OSError, ValueError) as error:
            warn(f"what is known of the champion cannot be read ({error})")
    return challenged(standing, known)


def challenged(new: Standing, champion: Mapping[str, Any] | None) -> tuple[bool, str]:
    """Compare a new version with the champion on dev. It wins if it is better beyond noise or there
    is no champion.

    Args:
        champion: `Standing.to_json` of the champion; empty if unknown, None if there is no
            champion.

    Returns:
        Whether it wins, and the reason, phrased to follow the version's name.
    """
    shown = f"{new.metric} on dev {new.dev.mean:.4f}; on test {with_spread(new.test_score, new.test_std, digits=4)}"
    if champion is None:
        return True, f"is the first champion ({shown})"
    problem = _cannot_be_compared(new, champion)
    if problem is None:
        found = compared(new.dev, Measured.from_json(champion["dev"]))
        difference = f"{signed(found.difference, digits=4)} on dev"
        if found.interval is not None and found.verdict is not None:
            interval = " to ".join(signed(end, digits=4) for end in found.interval)
            reason = {
                "better": "beats the champion beyond noise",
                "worse": "is worse than the champion beyond noise",
                "not shown": f"is not shown to be better than the champion, which stays: {found.cause}",
            }[found.verdict]
            return found.verdict == "better", f"{reason} ({difference}, 95 % interval {interval}; {shown})"
        problem = f"{difference}, and {NOISE_UNKNOWN}"
    return False, (
        f"does not take the title: {problem}. The alias {new.alias!r} stays where it is. To move it by hand, set it on "
        "the version's page in MLflow."
    )


def _cannot_be_compared(new: Standing, champion: Mapping[str, Any]) -> str | None:
    """Return why the two scores are not comparable; None if they are."""
    if "dev" not in champion:
        return "no scores of the champion on dev are known"
    if champion.get("data_hash") != new.data_hash:
        return "the champion was scored on other rows (the task's data changed)"
    if champion.get("metric") != new.metric:
        return f"the champion was scored by {champion.get('metric')}, this version by {new.metric}"
    if Measured.from_json(champion["dev"]).blocks.shape[1] != new.dev.blocks.shape[1]:
        return "the champion's rows were grouped in another way"
    return None


def prepared_pages(config: TrackingConfig, server: str, *, prefix: str, champion: str) -> list[tuple[str, str]]:
    """Return title and address of pages: all runs with the scores of pipelines, the newest report,
    the best model of each task, its trials compared, all models.

    Args:
        prefix: What stands before the name of the task in that of its registered model:
            `bertline-`.
        champion: Alias of the best version of a task.
    """
    pages = _pages(Store(config.uri, config.experiment_name), prefix, champion)
    return [(title, f"{server}/#/{page}") for title, page in pages]


def _pages(store: Store, prefix: str, champion: str) -> Iterator[tuple[str, str]]:
    experiment = store.experiment_id
    runs = store.find_runs({})[::-1]  # newest first
    # The columns of all runs: MLflow's own are hashes of data; others it keeps in each browser, or
    # in this tag.
    newest = [run for run in runs if PIPELINE_KEY_TAG in run.data.tags][:_RUNS]
    scores = sorted({key for run in newest for key in run.data.metrics if "/dev_" not in key})
    # Without a filter of its own, the page would keep the one that was last used.
    view = {"selectedColumns": [f"metrics.`{key}`" for key in scores], "searchFilter": ""}
    store.client.set_experiment_tag(experiment, "mlflow.sharedViewState.scores", json.dumps(view))
    yield "all runs", f"experiments/{experiment}/runs?{_query({'viewStateShareKey': 'scores', **_WORKFLOW})}"
    if (reported := _reported(store, runs)) is not None:
        yield "newest report", f"experiments/{experiment}/runs/{reported}/artifacts/{REPORT}?{_query(_WORKFLOW)}"
    for model in store.client.search_registered_models(f"name LIKE '{prefix}%'", order_by=["name ASC"]):
        if (version := model.aliases.get(champion)) is not None:
            title = f"best model of {model.name.removeprefix(prefix)}"
            yield title, f"models/{model.name}/versions/{version}?{_query(_WORKFLOW)}"
    staged = [(run.data.tags.get(STAGE_TAG, ""), run.info.run_id) for run in reversed(runs)]
    newest_sweeps = {name: sweep for name, sweep in staged if name.startswith("sweep@")}
    for name, sweep in sorted(newest_sweeps.items()):
        trials = [run.info.run_id for run in runs if run.data.metrics and _is_trial_of(run, sweep)][:_TRIALS]
        if len(trials) > 1:
            shown = {"runs": json.dumps(trials), "experiments": json.dumps([experiment]), **_WORKFLOW}
            yield f"trials of {name}", f"compare-runs?{_query(shown)}"
    # Not the registry's list, which drops the workflow from its address and then shows the
    # browser's, at first GenAI.
    yield "models", f"experiments/{experiment}/models?{_query(_WORKFLOW)}"


def _reported(store: Store, newest_first: list[Run]) -> str | None:
    """Return the newest pipeline's run that has a report."""
    evaluated = [run for run in newest_first if run.data.tags.get(STAGE_TAG) == "evaluate"][:_RUNS]
    pipelines = (run.data.tags[PARENT_TAG] for run in evaluated)
    return next((one for one in pipelines if REPORT in {file.path for file in store.client.list_artifacts(one)}), None)


def _is_trial_of(run: Run, sweep: str) -> bool:
    tags = run.data.tags
    return tags.get(PARENT_TAG) == sweep and tags.get(TRIAL_TAG, "").startswith("encoder/trial/")


def _query(values: dict[str, str]) -> str:
    return urlencode(values, quote_via=quote)
