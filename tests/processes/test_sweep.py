"""A sweep that is killed again and again ends as the undisturbed one."""

from __future__ import annotations

import json
import time
from collections import Counter

import optuna
from optuna.trial import TrialState

import finetuning_inputs as inputs
from bertline.sweep.run import run_sweep
from finetuning_inputs import events_of
from sweep_pieces import brief_job, start_until

PATIENCE_S = 600.0


def kill_after(folder, num_events, num_workers):
    """Start the sweep and kill it without warning once so many events are there."""
    process = start_until(folder, num_events, num_workers)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while len(events_of(brief_job(folder))) < num_events:
            assert process.is_alive(), "the sweep ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.kill()
        process.join()


def without_times(seeds):
    return [{key: value for key, value in seed.items() if key != "time_s"} for seed in seeds]


def test_a_killed_sweep_resumes_and_loses_and_repeats_nothing(tmp_path):
    inputs.write_inputs(tmp_path)
    kill_after(tmp_path, 3, num_workers=1)  # among the trials
    kill_after(tmp_path, 14, num_workers=2)  # among the repetitions
    run_sweep(brief_job(tmp_path), in_process=True)
    run_sweep(brief_job(tmp_path, "undisturbed"), in_process=True)

    killed, undisturbed = (
        json.loads((tmp_path / name / "result" / "result.json").read_text()) for name in ("run", "undisturbed")
    )
    for arm in ("encoder", "random_weights"):
        assert killed["arms"][arm]["best_params"] == undisturbed["arms"][arm]["best_params"]
        assert without_times(killed["arms"][arm]["seeds"]) == without_times(undisturbed["arms"][arm]["seeds"])
        study = optuna.load_study(study_name=f"halves/run/{arm}", storage=f"sqlite:///{tmp_path}/run/studies.db")
        finished = study.get_trials(states=(TrialState.COMPLETE,))
        points = Counter(tuple(sorted(trial.params.items())) for trial in finished)
        assert len(finished) == len(points) == 6
        assert not study.get_trials(states=(TrialState.RUNNING, TrialState.WAITING))
    assert killed["label_efficiency"] == undisturbed["label_efficiency"]
    identities = Counter((event["arm"], event["kind"], event["number"]) for event in events_of(brief_job(tmp_path)))
    assert max(identities.values()) == 1
