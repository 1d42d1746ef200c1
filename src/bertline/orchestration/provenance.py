"""Provenance of a result: the commit, the experiment, the content of inputs and outputs."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from bertline.foundation.files import sha256_of_path

_DIGEST_CHARACTERS = 36  # MLflow's limit for a dataset's digest


@cache
def git_commit() -> str:
    """Return the commit that is checked out, with `+changes` if tracked files differ from it; `none` outside git."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return "none"
    # params.yaml, dvc.lock and the metrics are left out: the pipeline itself writes them while it runs.
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "pipelines", "conf", "dvc.yaml")
    return f"{commit}+changes" if changes else commit


def running_under_dvc() -> bool:
    """Return whether DVC started this process for a stage (results then go to `artifacts/`)."""
    return "DVC_STAGE" in os.environ


def experiment_name() -> str | None:
    """Return the name of the running DVC experiment, if any."""
    return os.environ.get("DVC_EXP_NAME")


def artifact_digest(path: Path) -> str:
    """Return the digest that DVC recorded for an artifact, else the first 36 characters of its SHA-256."""
    return _dvc_digests().get(path.as_posix()) or sha256_of_path(path)[:_DIGEST_CHARACTERS]


def _dvc_digests() -> dict[str, str]:
    lock = Path("dvc.lock")
    if not running_under_dvc() or not lock.exists():
        return {}
    import yaml

    stages: dict[str, Any] = (yaml.safe_load(lock.read_text(encoding="utf-8")) or {}).get("stages", {})
    entries = [entry for stage in stages.values() for entry in stage.get("outs", [])]
    return {entry["path"]: entry["md5"] for entry in entries if "md5" in entry}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
