"""Who leads a sweep, who helps, and what is let go of when they stop."""

from __future__ import annotations

import pytest

from bertline.foundation.errors import ConfigError
from bertline.sweep import crew as crew_module
from bertline.sweep import workers
from bertline.sweep.crew import join_sweep, leading
from bertline.sweep.job import planned
from bertline.sweep.run import run_sweep
from bertline.sweep.store import StudyStore
from bertline.sweep.study import open_study


@pytest.fixture
def job(inputs, input_folder, tmp_path):
    (tmp_path / "run").mkdir()
    sweep = inputs.sweep(random_weights_baseline="never", num_trials=2, num_seeds=1)
    return inputs.sweep_job(input_folder, tmp_path / "run", sweep=sweep, task=inputs.task(label_efficiency_rows=()))


def always():
    return True


def never():
    return False


def test_what_a_stopped_leader_had_in_progress_is_free_at_once(job, inputs):
    with pytest.raises(KeyboardInterrupt), leading(planned(job), in_process=True) as crew:
        assert crew.studies.take() and crew.baselines.take()
        raise KeyboardInterrupt
    study = open_study(StudyStore(job.studies_url), "halves/run/encoder", job.sweep)
    states = [trial.state.name for trial in study.trials]
    assert states == ["FAIL", "WAITING", "WAITING"]
    assert [trial.user_attrs.get("tries") for trial in study.trials] == [0, 0, 0]  # its own fault it was not
    with leading(planned(job), in_process=True) as crew:
        assert crew.baselines.take()


def test_a_member_works_while_someone_leads(job, monkeypatch):
    monkeypatch.setattr(workers, "_LOOK_AGAIN_S", 0.02)
    with leading(planned(job), in_process=True) as crew:
        assert not join_sweep(job, is_led=never, in_process=True)
        moments = iter([True] * 20)
        assert not join_sweep(job, is_led=lambda: next(moments, False), in_process=True)
        assert crew.studies.is_finished() and crew.baselines.is_finished()


def test_a_member_of_a_finished_sweep_has_nothing_to_do(job, monkeypatch):
    run_sweep(job, in_process=True)
    monkeypatch.setattr(crew_module, "run_unit", None)
    assert join_sweep(job, is_led=always, in_process=True)


def test_a_member_that_comes_before_the_leader_waits_for_it_or_gives_up(job):
    assert not join_sweep(job, is_led=never)
    assert not (job.run_folder / "studies.db").exists()


def test_studies_in_a_file_are_not_shared_by_machines(job):
    with leading(planned(job), in_process=True):
        (job.run_folder / "leader").write_text("another-machine:1:0.00")
        with pytest.raises(ConfigError, match="SQLite file, which several machines cannot share"):
            join_sweep(job, is_led=always, in_process=True)
