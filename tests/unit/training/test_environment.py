"""The environment of training: settings, and one's place among machines, from made-up torchrun, Slurm and people."""

import os

import pytest

from bertline.foundation.errors import MachineError
from bertline.training.devices import Ranks, resolve_ranks
from bertline.training.environment import Node, adopt_srun_ranks, environment_for_training, outside_step, this_node

NAMES = ("GOMP_SPINCOUNT", "GLIBC_TUNABLES")


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({}, set(NAMES)),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, {"GLIBC_TUNABLES"}),
        ({"MALLOC_ARENA_MAX": "1"}, {"GOMP_SPINCOUNT"}),
        ({"GOMP_SPINCOUNT": "5", "GLIBC_TUNABLES": "glibc.malloc.check=3"}, set()),
    ],
)
def test_what_somebody_has_set_is_left(given, added):
    found = environment_for_training({"PATH": "/bin", **given})
    assert {name: found[name] for name in ("PATH", *given)} == {"PATH": "/bin", **given}
    assert found.keys() == {"PATH", *given} | added


# As srun sets them on the second of two nodes, one task on each, in a job of four.
STEP = {
    "SLURM_JOB_ID": "1234567", "SLURM_JOB_NUM_NODES": "4", "SLURM_JOB_NODELIST": "gpu[01-04]", "SLURM_NTASKS": "8",
    "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "gpu[03-04]",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9", "SLURM_NODEID": "1", "SLURM_PROCID": "1", "SLURM_LOCALID": "0",
}  # fmt: skip
# As Slurm sets them in a batch script, which runs on the first node only, and in the shell of `salloc`.
BATCH = {name: value for name, value in STEP.items() if "_STEP_" not in name and "LAUNCH" not in name}
ONE_TASK = {**STEP, "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_NODEID": "0"}


def test_one_node_needs_no_place():
    assert this_node(1, {}) == this_node(1, STEP) == Node()


def test_the_place_is_what_the_user_says():
    said = {"NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4000"}
    expected = Node(rank=1, num_nodes=2, address="10.0.0.1", port=4000)
    assert this_node(2, said) == this_node(2, {**STEP, **said}) == expected


@pytest.mark.parametrize(
    "meeting", [{"PET_MASTER_ADDR": "10.0.0.1", "PET_MASTER_PORT": "4000"}, {"PET_RDZV_ENDPOINT": "10.0.0.1:4000"}]
)
def test_torchruns_own_variables_are_understood(meeting):
    assert this_node(2, {"PET_NODE_RANK": "1", **meeting}) == Node(rank=1, num_nodes=2, address="10.0.0.1", port=4000)


def test_a_slurm_step_says_it_by_itself():
    node = this_node(2, STEP)
    assert (node.rank, node.address) == (1, "gpu03")
    # The same on every node, and another one for another job.
    assert node.port == this_node(2, {**STEP, "SLURM_NODEID": "0"}).port
    assert node.port != this_node(2, {**STEP, "SLURM_JOB_ID": "1234568"}).port


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("gpu07", "gpu07"),
        ("gpu[07-08,11],cpu3", "gpu07"),
        ("gpu[3,5-6]", "gpu3"),
        ("a,b[1-2]", "a"),
        ("rack[2-3]n[10-12]", "rack2n10"),
    ],
)
def test_the_first_of_a_list_of_hosts_is_where_all_meet(nodes, first):
    assert this_node(2, {**STEP, "SLURM_STEP_NODELIST": nodes}).address == first


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, r"NODE_RANK is not set.*MASTER_ADDR not set.*NODE_RANK=1 MASTER_ADDR=node0.*srun --nodes=2"),
        ({"NODE_RANK": "1"}, "MASTER_ADDR not set"),
        (BATCH, "NODE_RANK is not set"),
        ({"NODE_RANK": "2", "MASTER_ADDR": "a"}, r"NODE_RANK is 2 \(0 to 1\)"),
        ({"NODE_RANK": "first", "MASTER_ADDR": "a"}, "NODE_RANK is first"),
        ({**STEP, "SLURM_STEP_NUM_TASKS": "16"}, "16 tasks on 2 nodes.*one task on each node"),
        ({**STEP, "SLURM_STEP_NUM_NODES": "4", "SLURM_STEP_NUM_TASKS": "4"}, "4 tasks on 4 nodes"),
    ],
)
def test_a_place_that_is_not_said_or_cannot_be_is_an_error_with_an_example(environment, message):
    with pytest.raises(MachineError, match=message):
        this_node(2, environment)


@pytest.fixture
def srun(monkeypatch):
    """Puts variables into the environment, from which everything of another launcher has gone."""

    def start(variables):
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            # Set first, so that what the code sets is taken back after the test.
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return start


def test_tasks_of_one_srun_train_together(runtime, srun):
    srun({**STEP, "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3", "SLURM_LOCALID": "1"})
    assert resolve_ranks(runtime(num_devices=2, num_nodes=2)) == Ranks(rank=3, world_size=4, local_rank=1)
    # What Lightning and PyTorch meet by.
    assert [os.environ[name] for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR")] == ["3", "4", "gpu03"]


@pytest.mark.parametrize("alone", [BATCH, ONE_TASK, outside_step({**STEP, "SLURM_STEP_NUM_TASKS": "8"})])
def test_one_process_of_a_job_stays_alone_however_many_tasks_the_job_has(runtime, srun, alone):
    srun(alone)
    assert resolve_ranks(runtime()) == Ranks()
    assert "RANK" not in os.environ


@pytest.mark.parametrize(
    "said",
    [
        {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "10.0.0.1"},
        {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4000"},
    ],
)
def test_what_torchrun_or_the_user_says_inside_a_slurm_job_stands(said):
    environment = {**STEP, **said}
    adopt_srun_ranks(environment)
    assert {name: environment[name] for name in said} == said


def test_tasks_that_do_not_match_the_configuration_are_an_error(runtime, srun):
    srun({**STEP, "SLURM_STEP_NUM_TASKS": "4"})
    with pytest.raises(MachineError, match=r"need 2 processes, but 4 are running.*tasks of srun"):
        resolve_ranks(runtime(num_devices=2))
