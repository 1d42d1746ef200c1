"""Several machines, here processes, share a whole sweep: each unit is done once; deaths and outages change nothing."""

from __future__ import annotations

import functools
import json
import time
from collections import Counter
from uuid import uuid4

import optuna
import pytest
from optuna.trial import TrialState

import finetuning_inputs as inputs
import sweep_pieces
from bertline.sweep.run import run_sweep
from bertline.sweep.store import StudyStore
from bertline.sweep.study import open_study, plan_trials
from bertline.sweep.units import UnitTable
from fork_server import forking
from servers import PostgreSQL, wait_until

NUM_UNITS = 1 + 4 + 4 + 2  # the baselines; two arms over two seeds, their tests, and each arm on fewer rows


@pytest.fixture(scope="module")
def server():
    with PostgreSQL() as running:
        yield running


@pytest.fixture
def url(server):
    return server.database(f"of_{uuid4().hex}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("inputs")
    inputs.write_inputs(made)
    return made


def job_in(folder, run, url, num_epochs=1):
    return inputs.sweep_job(
        folder,
        run,
        sweep=inputs.sweep(fine_tuning=inputs.fine_tuning(num_epochs=num_epochs)),
        task=inputs.task(label_efficiency_rows=(32,)),
        studies_url=url,
    )


def result_of(job):
    """result.json without times, and without trials that were lost and tried again."""
    result = json.loads((job.run_folder / "result" / "result.json").read_text())
    for arm in result["arms"].values():
        arm["trials"] = [trial for trial in arm["trials"] if trial["state"] != "FAIL"]
        for entry in (*arm["trials"], *arm["seeds"]):
            entry.pop("time_s")
            entry.pop("number", None)
        arm["trials"].sort(key=lambda trial: json.dumps(trial["params"]))
    return result


@pytest.fixture(scope="module")
def alone(folder, tmp_path_factory):
    job = job_in(folder, tmp_path_factory.mktemp("alone") / "run", f"sqlite:///{folder}/alone.db", num_epochs=3)
    run_sweep(job, in_process=True)
    return result_of(job)


class Crew:
    """A leader and two others in the same run folder; nothing depends on which of them is quick."""

    def __init__(self, folder, tmp_path, url):
        self.job = job_in(folder, tmp_path / "run", url, num_epochs=3)
        self.job.run_folder.mkdir()
        self.logs = [tmp_path / f"{number}.log" for number in range(3)]
        self.leader, self.killed = tmp_path / "leader", tmp_path / "killed"
        self.processes = []

    def start(self, killed=None, at="trial"):
        """Start all; each waits after its first trial until all have had one.

        If one of them is to be killed after a trial or a seed, the others wait for the kill instead, and the sweep
        cannot end before it.
        """
        functions = (sweep_pieces.lead, sweep_pieces.help_along, sweep_pieces.help_along)
        all_had = functools.partial(sweep_pieces.all_say, dict.fromkeys(self.logs, ", trial "))
        held = sweep_pieces.Held(", trial ", 1, all_had if killed is None else self.killed.exists)
        for number, (function, log) in enumerate(zip(functions, self.logs, strict=True)):
            own = sweep_pieces.Held(f", {at} ", 2, sweep_pieces.never) if number == killed else held
            self.processes.append(forking().Process(target=function, args=(self.job, log, self.leader, own)))
            self.processes[-1].start()

    def kill(self, number):
        self.processes[number].kill()
        self.processes[number].join()
        self.killed.touch()

    def lines(self, number):
        return self.logs[number].read_text().splitlines() if self.logs[number].exists() else []

    def end(self):
        for process in self.processes:
            process.join(600)
        return [process.exitcode for process in self.processes]


@pytest.fixture
def crew(folder, tmp_path, url):
    made = Crew(folder, tmp_path, url)
    yield made
    for process in made.processes:
        process.kill()
        process.join()


def check_each_done_once(crew, url):
    for arm in ("encoder", "random_weights"):
        study = optuna.load_study(study_name=f"halves/run/{arm}", storage=StudyStore(url).storage)
        complete = study.get_trials(states=(TrialState.COMPLETE,))
        assert max(Counter(json.dumps(trial.params, sort_keys=True) for trial in complete).values()) == 1
        assert not study.get_trials(states=(TrialState.RUNNING, TrialState.WAITING))
    rows = UnitTable(StudyStore(url), (crew.job.run_folder / "owner").read_text()).rows()
    assert Counter(row.state for row in rows) == {"done": NUM_UNITS}
    events = [json.loads(line) for line in (crew.job.run_folder / "events.jsonl").read_text().splitlines()]
    assert max(Counter((event["arm"], event["kind"], event["number"]) for event in events).values()) == 1


def test_three_processes_share_all_work_and_end_as_one_alone(crew, url, alone, server):
    crew.start()
    wait_until(lambda: any("trial" in line for line in crew.lines(0)), timeout_s=600)
    server.restart()
    assert crew.end() == [0, 0, 0]
    assert result_of(crew.job) == alone
    check_each_done_once(crew, url)
    own = [{line for line in crew.lines(number) if line.startswith("halves, ")} for number in (1, 2)]
    assert own[0] and own[1] and not own[0] & own[1]
    leader = [line for line in crew.lines(0) if line.startswith("halves, ") and ", trial " not in line]
    assert all(leader.count(line) == 1 for line in leader)
    assert {line for line in own[0] | own[1] if ", trial " not in line} <= set(leader)
    assert [crew.lines(number)[-1] for number in (1, 2)] == ["the sweep is finished"] * 2
    assert crew.lines(0).count(f"The database of the studies at {StudyStore(url).shown} is back.") <= 1


@pytest.mark.parametrize(("who", "at"), [("a member", "trial"), ("the leader", "trial"), ("the leader", "seed")])
def test_a_killed_process_loses_only_what_it_had_in_progress(crew, url, alone, who, at):
    killed = 0 if who == "the leader" else 2
    crew.start(killed, at)
    wait_until(lambda: any(f", {at} " in line for line in crew.lines(killed)), timeout_s=600, every_s=0.02)
    crew.kill(killed)
    codes = crew.end()
    assert [code for number, code in enumerate(codes) if number != killed] == [0, 0]
    assert result_of(crew.job) == alone
    check_each_done_once(crew, url)
    if who == "the leader":
        assert any("nobody leads" in crew.lines(number) for number in (1, 2))


def test_eight_processes_on_a_study_whose_server_restarts_end_as_one_undisturbed(server, url):
    points, name = [{"x": number / 2} for number in range(48)], "task/run/encoder"
    store = StudyStore(url)
    study = open_study(store, name, inputs.sweep())
    plan_trials(store, study, points)
    processes = [forking().Process(target=sweep_pieces.tune, args=(url, name, inputs.sweep())) for _ in range(8)]
    for process in processes:
        process.start()
    for num_ended in (4, 20):
        wait_until(lambda: len(study.get_trials(states=(TrialState.COMPLETE,))) >= num_ended)  # noqa: B023
        server.stop()
        time.sleep(1.0)  # all processes meet a server that is away
        server.start()
    for process in processes:
        process.join(600)
    assert [process.exitcode for process in processes] == [0] * 8
    trials = study.get_trials()
    assert Counter(trial.state for trial in trials) == {TrialState.COMPLETE: len(points)}
    assert [trial.number for trial in trials] == list(range(len(points)))
    assert {trial.params["x"]: trial.value for trial in trials} == {point["x"]: point["x"] ** 2 for point in points}
    assert all(trial.intermediate_values == {step: trial.params["x"] + step for step in range(3)} for trial in trials)
