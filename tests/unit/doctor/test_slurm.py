"""Slurm's commands, faked; `tests/slurm` has the real ones."""

from __future__ import annotations

import pytest

from bertline.doctor.slurm import slurm_findings

UP = "Slurmctld(primary) at login1 is UP"
CONFIG = "AccountingStorageType   = {storage}\nMinJobAge               = 240 sec\n"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """`slurm(sbatch="script", ...)`: commands that are shell scripts; nothing else is on the path."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def commands(**scripts):
        usual = {
            "sbatch": "echo slurm 22.05.8",
            "squeue": "exit 0",
            "scontrol": f"[ $1 = ping ] && echo '{UP}' || echo '{CONFIG.format(storage='accounting_storage/none')}'",
        }
        for name, script in {**usual, **scripts}.items():
            if script is not None:
                (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
                (tmp_path / name).chmod(0o755)

    return commands


def found(**more):
    (line,) = slurm_findings(**{"is_used": True, **more})
    return line


def test_a_controller_that_answers_is_green_and_says_whether_it_remembers(slurm):
    slurm()
    line = found()
    assert (line.status, "22.05.8" in line.found) == ("green", True)
    assert "forgotten after 240 s" in line.found
    slurm(scontrol=f"[ $1 = ping ] && echo '{UP}' || echo '{CONFIG.format(storage='accounting_storage/slurmdbd')}'")
    assert "keeps accounts" in found().found


@pytest.mark.parametrize(("is_used", "status"), [(True, "red"), (False, "unused")])
def test_missing_commands_and_a_silent_controller_are_red_only_where_slurm_is_used(slurm, is_used, status):
    slurm(squeue=None)
    assert found(is_used=is_used).status == status
    slurm(squeue="exit 0", scontrol="echo 'Slurmctld(primary) at login1 is DOWN'")
    assert found(is_used=is_used).status == status
    slurm(squeue="echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    line = found(is_used=is_used)
    assert (line.status, "Unable to contact" in line.found) == (status, True)


def test_a_command_that_does_not_answer_is_red_in_time(slurm, monkeypatch):
    monkeypatch.setattr("bertline.doctor.slurm._ANSWER_S", 0.2)
    slurm(scontrol="exec /bin/sleep 30")
    line = found()
    assert (line.status, "no answer" in line.found) == ("red", True)


def test_a_job_that_slurm_would_refuse_is_red_with_its_words(slurm):
    slurm(sbatch='read line; case "$line" in *=none*) echo "sbatch: error: invalid partition" >&2; exit 1;; esac')
    line = found(script="#SBATCH --partition=none\n")
    assert (line.status, "invalid partition" in line.found, "runtime.launcher" in line.fix) == ("red", True, True)
    assert found(script="#SBATCH --partition=main\n").status == "green"
