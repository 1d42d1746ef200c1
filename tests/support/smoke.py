"""The whole pipeline on a tiny slice, in a temporary clone of the working tree: `make smoke`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]
"""The fixture `run`."""


def clone(target: Path, *, experiment: str = "smoke") -> Path:
    """Clone the repository as it stands, uncommitted changes included, and choose an experiment for good."""
    run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(target)], ROOT)
    changed = listed(["git", "ls-files", "--modified", "--others", "--exclude-standard"])
    deleted = set(listed(["git", "ls-files", "--deleted"]))
    for name in changed:
        if name in deleted:
            (target / name).unlink(missing_ok=True)
        else:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    # A clone has the committed run's params.yaml, lock and figures; a slice of its own starts without them.
    for name in ("params.yaml", "dvc.lock"):
        (target / name).unlink(missing_ok=True)
    run([sys.executable, "-m", "bertline", "configure", f"experiment={experiment}", "--save"], target)
    return target


def run(command: list[str], folder: Path, **extra: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a clone, in its `environment`; output is shown."""
    return subprocess.run(command, cwd=folder, env=environment(folder, **extra), check=True, text=True)


def environment(folder: Path, *, programs: Path | None = None, **extra: str) -> dict[str, str]:
    """The environment of a clone: its own source first, `programs` first on the path, telemetry off."""
    folders = [*([programs] if programs else []), Path(sys.executable).parent, os.environ.get("PATH", "")]
    path = os.pathsep.join(map(str, folders))
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DVC_", "PYTEST_"))}
    quiet = {"DVC_NO_ANALYTICS": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "1"}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of dozens of processes recompiles the library
    return {**kept, **quiet, "PATH": path, "PYTHONPATH": str(folder / "src"), **extra}


def succeeded(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """A command that must not have failed."""
    assert done.returncode == 0, f"$ {done.args}\n{done.stdout}\n{done.stderr}"
    return done


def listed(command: list[str]) -> list[str]:
    """The lines that a git command prints."""
    done = subprocess.run(command, cwd=ROOT, check=True, text=True, capture_output=True)
    return done.stdout.splitlines()


def main() -> None:
    """Run the pipeline and say what came out."""
    with tempfile.TemporaryDirectory(prefix="bertline-smoke-") as temporary:
        started = time.monotonic()
        folder = clone(Path(temporary) / "bertline")
        run(["dvc", "repro"], folder)
        print(f"smoke: the whole pipeline in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
