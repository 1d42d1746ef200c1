"""A small pipeline whose pretraining is a job on the test cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import found_processes
import smoke
import warm_python
from bertline.foundation.files import sha256_of_file
from slurm_cluster import SlurmCluster

WITHIN_S = 600.0
# Real Slurm's sbatch, told where to wait; what it accepts is counted.
_SBATCH = """#!/bin/bash
echo $$ > "$WORKSPACE/sbatch.begun.part"; mv "$WORKSPACE/sbatch.begun.part" "$WORKSPACE/sbatch.begun"
if [ -e "$WORKSPACE/wait.before" ]; then sleep 4; fi
answer=$({sbatch} "$@"); status=$?
[ $status = 0 ] && echo "$answer" >> "$WORKSPACE/accepted"
touch "$WORKSPACE/sbatch.accepted"
if [ -e "$WORKSPACE/wait.after" ]; then sleep 4; fi
echo "$answer"; exit $status
"""


def make_template(folder: Path) -> None:
    """Make the clone that workspaces are copies of: the smoke pipeline up to the examples, on one machine."""
    environment = smoke.environment(smoke.clone(folder), programs=warm_python.programs())
    command = ["dvc", "repro", "--quiet", "examples", "task_data@docs_match"]
    subprocess.run(command, cwd=folder, env=environment, check=True)


def make_pretrained(template: Path, folder: Path) -> None:
    """Make a clone that has a short pretraining, too."""
    shutil.copytree(template, folder, symlinks=True)
    environment = smoke.environment(folder, programs=warm_python.programs())
    short = ["experiment=smoke", "pretrain.max_steps=10", "tracking.enabled=false"]
    for command in (["bertline", "configure", *short, "--save"], ["dvc", "repro", "--quiet", "pretrain"]):
        subprocess.run(command, cwd=folder, env=environment, check=True)


@dataclass(frozen=True)
class Workspace:
    """A clone whose `pretrain` and `sweep` are jobs of two nodes."""

    folder: Path
    cluster: SlurmCluster

    @classmethod
    def copied(cls, template: Path, folder: Path, cluster: SlurmCluster, *overrides: str) -> Workspace:
        """Copy the template and save what makes its pretraining a job, and the overrides."""
        shutil.copytree(template, folder, symlinks=True)
        workspace = cls(folder, cluster)
        programs = folder / "programs"
        programs.mkdir()
        (programs / "sbatch").write_text(_SBATCH.format(sbatch=shutil.which("sbatch")))
        (programs / "sbatch").chmod(0o755)
        job = ("runtime=slurm", "runtime.device=cpu", "runtime.num_devices=1", "runtime.launcher.gpus=false")
        quiet = ("experiment=smoke", "tracking.enabled=false")
        workspace.configure(*quiet, *job, *overrides)
        return workspace

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a shell on the login node."""
        of_clone = smoke.environment(self.folder, programs=self.folder / "programs")
        of_cluster = {"SLURM_CONF": str(self.cluster.configuration), "WORKSPACE": str(self.folder)}
        kept = {name: value for name, value in of_clone.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        return {**kept, **of_cluster, "OMP_NUM_THREADS": "1"}

    @property
    def run(self) -> Path:
        """The run folder of the pretraining; there must be one."""
        (found,) = (path for path in (self.folder / "runs/pretrain").iterdir() if (path / "config.yaml").exists())
        return found

    @property
    def weights(self) -> str:
        """Digest of the weights of the finished pretraining."""
        return sha256_of_file(self.run / "result/model.safetensors")

    @property
    def accepted(self) -> list[str]:
        """Jobs that Slurm has accepted from this workspace."""
        path = self.folder / "accepted"
        return path.read_text().split() if path.exists() else []

    @property
    def log(self) -> str:
        """The log of the run."""
        return (self.run / "log").read_text()

    @property
    def starts(self) -> list[dict[str, Any]]:
        """The starts of the job."""
        return [json.loads(line) for line in (self.run / "starts.jsonl").read_text().splitlines()]

    @property
    def ranks(self) -> list[int]:
        """Processes of the ranks, the first rank first."""
        found: dict[int, int] = {}
        for process in found_processes.having(f"WORKSPACE={self.folder}"):
            with suppress(psutil.Error):  # ended meanwhile
                command, rank = process.cmdline(), process.environ().get("SLURM_PROCID")
                if rank is not None and "bertline.run.ranks" in command and command[0] == sys.executable:
                    found.setdefault(int(rank), process.pid)
        return [found[rank] for rank in sorted(found)]

    def warm(self) -> None:
        """Run `python` and `dvc` of shells, and the jobs that these submit, without the seconds of importing."""
        programs = self.folder / "programs"
        programs.mkdir(exist_ok=True)
        for name in ("python", "dvc"):
            (programs / name).symlink_to(warm_python.programs() / name)

    @property
    def is_warm(self) -> bool:
        """Whether `warm` was called."""
        return (self.folder / "programs/python").exists()

    def configure(self, *overrides: str) -> None:
        """Save a configuration."""
        command = [str(warm_python.programs() / "python"), "-m", "bertline", "configure", *overrides, "--save"]
        subprocess.run(command, cwd=self.folder, env=self.environment, check=True, capture_output=True, text=True)

    def start(self, *command: str, output: str = "client.log") -> subprocess.Popen[bytes]:
        """Start a client in a session of its own; by default the recipe, as a real process, which gets signals itself.

        What it prints is added to a file.
        """
        command = command or (sys.executable, "pipelines/pretrain.py")
        with (self.folder / output).open("ab") as handle:
            return subprocess.Popen(
                ["env", "--default-signal=HUP", *command],  # under nohup, no client would notice that its terminal went
                cwd=self.folder,
                env=self.environment,
                stdout=handle,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def finish(self, *command: str, expected: int = 0) -> str:
        """Run a client to its end, and return what it printed; by default the recipe, which may be warm.

        Raises:
            AssertionError: It ended with another status than expected.
        """
        command = command or (("python" if self.is_warm else sys.executable), "pipelines/pretrain.py")
        process = self.start(*command, output="last.log")
        try:
            status = process.wait(WITHIN_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        path = self.folder / "last.log"
        said = path.read_text()
        path.unlink()
        assert status == expected, f"{status}: {said}"
        return said

    def until(self, what: Callable[[], Any], *, within_s: float = WITHIN_S) -> Any:
        """Wait until something is true (an error of a missing or torn file counts as not yet), and return it.

        Raises:
            AssertionError: It was not in time; with what client and job have written.
        """
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            try:
                if found := what():
                    return found
            except (OSError, ValueError, StopIteration):
                pass
            time.sleep(0.1)
        raise AssertionError(self._written())

    def until_step(self, step: int) -> None:
        """Wait until the run has a checkpoint of this step, or of a later one."""
        self.until(lambda: any(int(path.stem[5:]) >= step for path in self.run.glob("checkpoints/step-*.pt")))

    def said(self, text: str, *, output: str = "client.log") -> bool:
        """Whether a client has printed a text."""
        return text in (self.folder / output).read_text()

    def _written(self) -> str:
        paths = [*self.folder.glob("*.log"), *self.folder.glob("runs/pretrain/*/log")]
        return "\n".join(f"--- {path.name}\n{path.read_text()[-2000:]}" for path in paths)
