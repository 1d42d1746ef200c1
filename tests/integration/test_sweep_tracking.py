"""MLflow shows a sweep as Optuna has it: pruned, failed and finished trials, their points and their curves."""

from __future__ import annotations

import json

import optuna
import pytest

import finetuning_inputs as inputs
from bertline.sweep.config import HalvingPrunerConfig
from bertline.sweep.run import run_sweep
from bertline.tasks.config import ChoiceSpace
from bertline.tracking.record import NOTE_TAG, PARENT_TAG, STAGE_TAG, TRIAL_TAG, Attachment
from bertline.tracking.store import Store
from tracking_inputs import opened, record, send, tracking

STATUS = {"COMPLETE": "FINISHED", "PRUNED": "KILLED", "FAIL": "FAILED"}


def study_of(job):
    """The study of the encoder."""
    (name,) = (name for name in optuna.get_all_study_names(job.studies_url) if name.endswith("/encoder"))
    return optuna.load_study(study_name=name, storage=job.studies_url)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A pruned sweep with a trial that diverges; returns its job and result.json."""
    folder = tmp_path_factory.mktemp("sweep")
    inputs.write_inputs(folder)
    job = inputs.sweep_job(
        folder,
        folder / "run",
        sweep=inputs.sweep(
            pruner=HalvingPrunerConfig(kind="successive_halving", reduction_factor=2, num_rungs=2),
            space={"learning_rate": ChoiceSpace(kind="choice", values=(1e-6, 1e-5, 2e-6, 1e-2, 3e-2, 1e30))},
            fine_tuning=inputs.fine_tuning(num_epochs=4),
            random_weights_baseline="never",
        ),
        task=inputs.task(label_efficiency_rows=()),
    )
    run_sweep(job)
    return job, json.loads((job.run_folder / "result" / "result.json").read_text())


def test_pruned_and_failed_trials_are_told_from_finished_ones(swept):
    _, result = swept
    trials = result["arms"]["encoder"]["trials"]
    states = {trial["params"]["learning_rate"]: trial["state"] for trial in trials}
    assert states.pop(1e30) == "FAIL"
    assert "PRUNED" in states.values()
    pruned = [trial for trial in trials if trial["state"] == "PRUNED"]
    assert all(trial["curve"][-1][0] in (0.25, 0.5) for trial in pruned)
    assert all(trial["curve"][-1][0] == 1 for trial in trials if trial["state"] == "COMPLETE")
    assert states[result["arms"]["encoder"]["best_params"]["learning_rate"]] == "COMPLETE"
    assert result["num_trials"] == 5


def test_a_study_that_depends_on_the_number_of_workers_says_so(swept):
    job, result = swept
    study = study_of(job)
    assert study.user_attrs["workers_matter"] is True
    assert result["workers_matter"] is True
    assert "another number of workers" in result["note"]


def test_the_runs_of_mlflow_have_optunas_states_points_and_curves(swept, tmp_path):
    job, _ = swept
    config = tracking(f"sqlite:///{tmp_path}/mlflow.db", "sweep")
    trials = Attachment(path="result/trials.csv", contains_text=False)
    opened(job.run_folder, record(config, name="sweep@halves", attachments=[trials]), "finished")
    assert send(job.run_folder)
    store = Store(config.uri, config.experiment_name)
    (sweep,) = store.find_runs({STAGE_TAG: "sweep@halves"})
    client = store.client
    runs = {
        run.data.tags[TRIAL_TAG]: run
        for run in store.find_runs({PARENT_TAG: sweep.info.run_id})
        if TRIAL_TAG in run.data.tags
    }
    study = study_of(job)
    assert len(runs) == len(study.trials) + 2  # and the two seeds
    words_of = {"FAIL": "training has diverged. Lower", "PRUNED": "Stopped early, after", "COMPLETE": ""}
    for trial in study.trials:
        run = runs[f"encoder/trial/{trial.number}"]
        assert run.info.status == STATUS[trial.state.name]
        assert float(run.data.params["learning_rate"]) == trial.params["learning_rate"]
        steps = [point.step for point in client.get_metric_history(run.info.run_id, "dev/score_by_percent")]
        note = run.data.tags.get(NOTE_TAG, "")
        assert words_of[trial.state.name] in note and bool(note) == (trial.state.name != "COMPLETE")
        assert steps == [round(100 * share) for share, _ in trial.user_attrs.get("curve", [])]
    seeds = [run for name, run in runs.items() if "/seed/" in name]
    assert all("test/accuracy" in run.data.metrics and run.info.status == "FINISHED" for run in seeds)
    assert {file.path for file in client.list_artifacts(sweep.info.run_id)} == {"trials.csv"}
