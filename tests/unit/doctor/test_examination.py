"""The examination of a rank whose surroundings are broken: it ends in time, and each problem is a line of its own."""

from __future__ import annotations

import os
import threading
import time

import pytest

from bertline.doctor import together
from bertline.doctor.examination import Examination, Report
from bertline.doctor.finding import green, red
from bertline.doctor.limits import Deadline, run_checks
from bertline.doctor.meeting import Place
from bertline.doctor.processes import cores_and_quota
from bertline.training.devices import Ranks
from ports import free_port

HANGS = red("data: folder", "no answer within 16 s", "Look at its mount.")


@pytest.fixture
def examination(config, tmp_path):
    """`examination(*overrides, world_size=2)`: that of rank 0, which has 7 s."""

    def of(*overrides, world_size=1, left_s=7.0):
        place = Place(ranks=Ranks(world_size=world_size), host="node1", port=free_port())
        return Examination(config(*overrides), place, tmp_path, Deadline(time.monotonic() + left_s))

    return of


def report(*findings):
    return Report(
        rank=0, host="node1", cores=cores_and_quota(), memory_bytes=1 << 40, device_type="cpu", findings=list(findings)
    )


def test_a_folder_that_hangs_delays_nothing_but_its_own_check(examination, monkeypatch):
    """The ranks come after the folders; a mount whose server is gone blocks whoever asks for it."""
    access, ended = os.access, threading.Event()

    def blocks(path, *args, **kwargs):
        if os.path.basename(path) == "data":  # noqa: PTH119  (a path or a string)
            ended.wait(600)
        return access(path, *args, **kwargs)

    monkeypatch.setattr(os, "access", blocks)
    monkeypatch.setattr(Examination, "report", lambda examination: report(HANGS))
    started = time.monotonic()
    ((_, findings),) = together.examine(examination(world_size=2, left_s=5.3))
    assert time.monotonic() - started < 300  # half of the time for which it hangs
    ended.set()
    lines = {one.check: one for one in findings}
    assert (lines["data: folder"], lines["ranks"].status) == (HANGS, "red")


@pytest.mark.parametrize(
    ("finding", "is_shared"), [(green("data: rename", "atomic"), True), (HANGS, False)], ids=["writable", "hangs"]
)
def test_ranks_compare_what_they_see_of_an_input_only_where_they_can_write(examination, finding, is_shared):
    titles = together._shared_titles(examination(), report(finding))
    assert titles == ["runs", "cache", *(["data"] if is_shared else [])]


def test_the_batches_are_counted_as_the_loader_hands_them_over(examination):
    phases = "pretrain.phases=[{steps: 1000, max_length: 64, global_batch_size: 64}]"
    traffic = examination(phases, "runtime.num_workers=8", "runtime.micro_batch_size=24")._traffic()
    assert (traffic.num_steps, traffic.micro_batches) == (8 * 4 + 3, 3)
    # int32 ids and masks of 72 rows: nothing that follows from the lengths, and no int64
    assert 4 < traffic.bytes_per_step / (72 * 64) < 8


def test_a_folder_that_sbatch_cannot_take_is_a_line_of_the_table(examination, tmp_path, monkeypatch):
    folder = tmp_path / "100%"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("bertline.doctor.slurm._answer", lambda command, text="": (0, "is UP"))
    monkeypatch.setattr("bertline.doctor.slurm.shutil.which", lambda command: command)
    examined = examination("runtime/launcher=slurm")
    (check,) = [one for one in examined._servers() if one.name == "Slurm"]
    (line,) = run_checks([check], examined.deadline)
    assert (line.check, line.status, line.fix) == ("Slurm", "red", "Rename it.")
    assert "100% has a %" in line.found
