"""Cores, open files and shared memory against the ranks and data workers of the configuration."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from bertline.doctor.examination import AHEAD_OF_EACH_WORKER, AHEAD_OF_TRAINING
from bertline.doctor.processes import (
    BatchTraffic,
    cores_and_quota,
    cores_finding,
    cpu_quota,
    descriptor_finding,
    memory_limit,
    shared_memory_finding,
)
from bertline.pretraining import data

TRAFFIC = BatchTraffic(num_workers=2, num_steps=11, micro_batches=4, tensors=8, bytes_per_step=1_000_000)


@pytest.fixture
def limited():
    """Set the soft limit of open files, and put it back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda number: resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_too_few_open_files_are_red_with_the_number_that_is_enough(limited):
    assert TRAFFIC.num_files == 256 + 11 * 4 * 8
    limited(TRAFFIC.num_files)
    assert descriptor_finding(TRAFFIC).status == "green"
    limited(TRAFFIC.num_files - 1)
    found = descriptor_finding(TRAFFIC)
    assert (found.status, f"ulimit -n {TRAFFIC.num_files}" in found.fix) == ("red", True)


def test_a_hard_limit_that_is_too_low_is_for_the_administrator(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (64, 64))
    assert "limits.conf" in descriptor_finding(TRAFFIC).fix


def test_a_small_shared_memory_is_red(small_disk):
    found = shared_memory_finding(TRAFFIC, 2, small_disk)
    assert (found.status, "--shm-size=1g" in found.fix) == ("red", True)
    assert "at most 25 MB needed" in found.found


def test_a_machine_without_shared_memory_is_red_with_how_to_mount_it():
    found = shared_memory_finding(TRAFFIC, 2, Path("/nowhere"))
    assert (found.status, found.found) == ("red", "/nowhere is missing")
    assert "mount -t tmpfs" in found.fix and "runtime.num_workers=0" in found.fix


def test_without_data_workers_no_shared_memory_is_needed(tmp_path):
    none = BatchTraffic(num_workers=0, num_steps=3, micro_batches=1, tensors=8, bytes_per_step=10**12)
    assert shared_memory_finding(none, 8, tmp_path).status == "unused"
    assert none.num_files == 256


def test_two_ranks_bound_to_one_core_are_red(runtime):
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        rank = cores_and_quota()
    finally:
        os.sched_setaffinity(0, before)
    assert rank["cores"] == [min(before)]
    found = cores_finding([rank, rank], runtime(num_devices=2), "cpu")
    assert (found.status, "--cpus-per-task" in found.fix) == ("red", True)


def test_ranks_with_a_core_each_are_fine_and_gpus_want_cores_for_their_workers(runtime):
    ranks = [{"cores": [0], "quota": None}, {"cores": [1], "quota": None}]
    assert cores_finding(ranks, runtime(num_devices=2), "cpu").status == "green"
    assert cores_finding(ranks, runtime(num_devices=2), "cuda").status == "note"
    assert cores_finding(ranks, runtime(num_devices=2, num_workers=0), "cuda").status == "green"
    assert cores_finding(ranks, runtime(num_devices=2, num_threads=2), "cpu").status == "note"


def test_the_quota_of_a_container_counts_as_fewer_cores(runtime):
    found = cores_finding([{"cores": list(range(64)), "quota": 1.5}] * 2, runtime(num_devices=2), "cpu")
    assert found.status == "red"
    assert "64 core(s), 1.5 of them by the quota" in found.found


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_cgroups_are_read_on_the_way_to_the_root(tmp_path, version):
    root, own = tmp_path / "cgroup", tmp_path / "own"
    if version == 2:
        own.write_text("0::/job/step\n")
        folder = root / "job"
        (folder / "step").mkdir(parents=True)
        (folder / "cpu.max").write_text("150000 100000\n")
        (folder / "step/cpu.max").write_text("max 100000\n")
        memory, limit, used = folder, "memory.max", "memory.current"
    else:
        own.write_text("4:memory:/job\n3:cpu:/job\n")
        folder = root / "cpu/job"
        folder.mkdir(parents=True)
        (folder / "cpu.cfs_quota_us").write_text("150000\n")
        (folder / "cpu.cfs_period_us").write_text("100000\n")
        memory, limit, used = root / "memory/job", "memory.limit_in_bytes", "memory.usage_in_bytes"
        memory.mkdir(parents=True)
    (memory / limit).write_text("1000000\n")
    (memory / used).write_text("400000\n")
    (memory / "memory.stat").write_text("anon 300000\ninactive_file 100000\n")
    assert cpu_quota(root, own) == 1.5
    assert memory_limit(root, own) == 700_000
    assert cpu_quota(tmp_path / "none", tmp_path / "none") is None


def test_as_many_steps_are_ready_as_the_training_prepares():
    assert AHEAD_OF_EACH_WORKER == data._STEPS_AHEAD
    assert AHEAD_OF_TRAINING == data._STEPS_FETCHED + 1  # and the one that is computed
