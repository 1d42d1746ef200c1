"""Ranks: their places, sums that are wrong or never end, clocks, folders between hosts; real processes over gloo."""

from __future__ import annotations

import re
import time

import pytest

import doctor_ranks
from bertline.doctor import shared_folders
from bertline.doctor.communication import communication_findings
from bertline.doctor.meeting import Meeting, Place, place_of, ranks_to_start
from bertline.foundation.errors import MachineError
from bertline.training.devices import Ranks
from ports import free_port

NAMES = ["rank 0 (node1)", "rank 1 (node2)"]


def judged(measurements, gradient_bytes=10**6):
    found = communication_findings(measurements, NAMES, gradient_bytes=gradient_bytes)
    return {one.check: one for one in found}


def test_two_ranks_sum_correctly_and_know_their_speed(tmp_path):
    lines = judged(doctor_ranks.measured(free_port(), {}, tmp_path), gradient_bytes=1)
    assert {name: one.status for name, one in lines.items()} == {"all-reduce": "green", "clocks": "green"}
    assert lines["all-reduce"].measured["bytes_per_s"] > 0


def test_the_rank_that_adds_wrongly_is_named(tmp_path):
    line = judged(doctor_ranks.measured(free_port(), {1: doctor_ranks.adds_wrongly}, tmp_path))["all-reduce"]
    assert (line.status, "rank 1 (node2)" in line.found, "rank 0" in line.found) == ("red", True, False)


def test_the_clock_that_is_ahead_is_named_with_its_difference(tmp_path):
    line = judged(doctor_ranks.measured(free_port(), {1: doctor_ranks.clock_is_ahead}, tmp_path))["clocks"]
    assert line.status == "red"
    (ahead_s,) = re.findall(r"the clock of rank 1 \(node2\) is \+([\d.]+) s from that of rank 0 \(node1\)", line.found)
    assert 3000 < float(ahead_s) < 4200  # an hour, whose error is half of the time that a message takes


def test_a_rank_that_does_nothing_ends_the_measurement_of_the_others_in_time(tmp_path):
    first, idle = doctor_ranks.measured(free_port(), {1: doctor_ranks.hangs}, tmp_path, limit_s=2)
    assert "imed out" in first["error"]
    assert "error" in idle


def measurement(**changes):
    usual = {"backend": "nccl", "wrong_ranks": [], "bytes_per_s": 1e9, "latency_s": 1e-4}
    return {**usual, "clock_offset_s": 0.0, "clock_error_s": 0.0, **changes}


def test_a_network_on_which_a_step_waits_a_second_for_its_gradients_is_noted():
    slow = [measurement(), measurement(bytes_per_s=1e8)]
    line = judged(slow, gradient_bytes=440_000_000)["all-reduce"]
    assert (line.status, "NCCL_SOCKET_IFNAME" in line.fix) == ("note", True)
    assert line.measured["gradients_s"] == pytest.approx(4.4)
    assert judged([measurement()] * 2, gradient_bytes=440_000_000)["all-reduce"].status == "green"


def test_a_clock_that_is_off_by_less_than_its_error_is_green():
    assert judged([measurement(), measurement(clock_offset_s=1.5, clock_error_s=0.6)])["clocks"].status == "green"
    assert judged([measurement(), measurement(clock_offset_s=-1.5, clock_error_s=0.1)])["clocks"].status == "red"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (None, ["green other nodes", "green lock of other nodes"]),
        (doctor_ranks.sees_nothing, ["red other nodes"]),
        (doctor_ranks.sees_half, ["red other nodes", "green lock of other nodes"]),
        (doctor_ranks.has_locks_of_its_own, ["green other nodes", "note lock of other nodes"]),
    ],
)
def test_what_another_node_sees_of_a_folder(tmp_path, fault, expected):
    folder = tmp_path / "runs"
    folder.mkdir()
    found = doctor_ranks.looked(free_port(), folder, {} if fault is None else {1: fault}, tmp_path)
    assert [f"{status} {check.removeprefix('runs: ')}" for status, check, _ in found] == expected
    assert list(folder.iterdir()) == []


def test_a_folder_that_the_first_rank_cannot_write_cannot_be_checked_and_no_rank_waits(tmp_path):
    started = time.monotonic()
    found = doctor_ranks.looked(free_port(), tmp_path, {0: doctor_ranks.may_not_write}, tmp_path)
    assert found == [["red", "runs: other nodes", "cannot be checked: Permission denied"]]
    assert time.monotonic() - started < 300  # half of the time that each may wait


def test_how_soon_a_node_sees_a_file_is_measured(tmp_path):
    started = time.monotonic()
    found = doctor_ranks.looked(free_port(), tmp_path, {1: doctor_ranks.sees_late}, tmp_path)
    seconds = float(found[0][2].partition("after ")[2].split()[0])
    assert 99 * shared_folders._POLL_S - 0.01 < seconds < time.monotonic() - started


def test_without_variables_a_process_is_alone():
    assert place_of({"SLURMD_NODENAME": "gpu07"}) == Place(ranks=Ranks(), host="gpu07")


def test_the_place_is_that_of_torchrun_or_srun():
    torchrun = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "a"}
    place = place_of({**torchrun, "MASTER_PORT": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"})
    assert (place.ranks, place.num_local_ranks) == (Ranks(rank=3, world_size=4, local_rank=1), 2)
    assert not place.owns_store
    srun = {"SLURM_STEP_NUM_TASKS": "20", "SLURM_PROCID": "19", "SLURM_LOCALID": "3", "SLURM_NODEID": "2"}
    place = place_of({**srun, "SLURM_STEP_NODELIST": "gpu[07-09]", "SLURM_STEP_TASKS_PER_NODE": "8(x2),4"})
    assert (place.ranks.rank, place.address, place.num_local_ranks) == (19, "gpu07", 4)


def test_one_task_for_each_node_starts_a_rank_for_each_device(runtime):
    two_by_four = runtime(num_nodes=2, num_devices=4)
    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2", "SLURM_NODEID": "1", "SLURM_PROCID": "1"}
    started = ranks_to_start(two_by_four, {**step, "SLURM_STEP_NODELIST": "gpu[07-08]", "SLURM_JOB_ID": "5"})
    assert [(one["RANK"], one["LOCAL_RANK"], one["WORLD_SIZE"]) for one in started] == [
        (str(4 + local), str(local), "8") for local in range(4)
    ]
    assert started[0]["MASTER_ADDR"] == "gpu07"
    assert ranks_to_start(two_by_four, {**step, "SLURM_STEP_NUM_TASKS": "8"}) == []  # srun has started them all
    assert ranks_to_start(two_by_four, {"RANK": "0", "WORLD_SIZE": "8"}) == []


def test_a_machine_that_does_not_know_its_place_examines_its_own_devices(runtime):
    started = ranks_to_start(runtime(num_nodes=2, num_devices=2), {})
    assert [one["WORLD_SIZE"] for one in started] == ["2", "2"]


def test_a_port_that_is_taken_is_an_error_with_the_address(tmp_path):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = Place(ranks=Ranks(world_size=2), host="node1", port=taken.getsockname()[1])
        with pytest.raises(MachineError, match="MASTER_PORT is free"):
            Meeting(place, limit_s=1)
