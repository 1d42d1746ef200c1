"""Provenance of a result: the commit, the experiment, the content of inputs and outputs."""

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from bertline.evaluation.facts import PROVENANCE_NAME
from bertline.foundation.files import sha256_of_path, write_json
from bertline.foundation.formats import number_of
from bertline.foundation.parallel import processor_name, usable_cores
from bertline.stages.registry import stage_named
from bertline.training.config import RuntimeConfig


@cache
def git_commit() -> str:
    """Return the commit that is checked out, with `+changes` if tracked files differ from it; `none` outside git."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return "none"
    # params.yaml, dvc.lock and the metrics are left out: the pipeline itself writes them while it
    # runs.
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "pipelines", "conf", "dvc.yaml")
    return f"{commit}+changes" if changes else commit


def running_under_dvc() -> bool:
    """Return whether DVC started this process for a stage (results then go to `artifacts/`)."""
    return "DVC_STAGE" in os.environ


def artifact_digest(path: Path) -> str:
    """Return the digest that DVC recorded for an artifact, else the first 36 characters of its SHA-256."""
    stages = locked_stages() if running_under_dvc() else {}
    entries = [entry for stage in stages.values() for entry in stage.get("outs", [])]
    digests = [entry["md5"] for entry in entries if entry["path"] == path.as_posix() and "md5" in entry]
    return digests[-1] if digests else sha256_of_path(path)[:36]  # MLflow's limit for a dataset's digest


def write_provenance(result: Path, frozen: Mapping[str, Any], runtime: RuntimeConfig) -> None:
    """Write `provenance.json` into a result: what the report says about where and when the work was done."""
    write_json(
        result / PROVENANCE_NAME,
        {
            "stage": stage_named(frozen["stage"]).full_name(frozen.get("task_name")),
            "ended": datetime.now(tz=UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "commit": frozen.get("commit", ""),
            "fingerprint": frozen.get("fingerprint", ""),
            "machine": _machine(runtime),
            "versions": {"python": platform.python_version(), **frozen.get("made_of", {}).get("versions", {})},
        },
    )


def md5_of_path(path: Path) -> str:
    """Return the digest that DVC records for a file or, from the list of its files, for a folder."""
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    files = {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}
    listing = json.dumps([{"md5": md5_of_path(files[name]), "relpath": name} for name in sorted(files)])
    return f"{hashlib.md5(listing.encode(), usedforsecurity=False).hexdigest()}.dir"


def _machine(runtime: RuntimeConfig) -> str:
    """Describe the processor or the GPUs, without the name of the host."""
    torch = sys.modules.get("torch")
    if torch is not None and runtime.device in ("auto", "cuda") and torch.cuda.is_available():
        return f"{runtime.num_devices * runtime.num_nodes} × {torch.cuda.get_device_name()}"
    return f"{number_of(len(usable_cores()), 'CPU core')} ({processor_name()})"


class _LockLoader(yaml.CSafeLoader):  # ten times as fast as that in Python
    """Reads numbers as DVC writes them: `1e-12` is a number in YAML 1.2, and text for PyYAML."""


_LockLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def locked_stages() -> dict[str, Any]:
    """Return what dvc.lock records, by the stage's name in DVC; empty without the file."""
    lock = Path("dvc.lock")
    content = yaml.load(lock.read_text(encoding="utf-8"), _LockLoader) if lock.exists() else None  # noqa: S506
    return (content or {}).get("stages") or {}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
