"""Secrets come from the environment only, and are in nothing that a pipeline writes or prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import smoke
from planted import SECRET, places_of_secret
from smoke import Run

SERVER = f"https://ada:{SECRET}@mlflow.example.org"
TOKEN = f"hf_{SECRET}0123456789"
STUDIES = f"postgresql://ada:{SECRET}@db.example.org/studies"


def test_a_pipeline_that_ran_with_secrets_in_its_environment_wrote_none_of_them(pipeline: Path) -> None:
    assert (pipeline / "artifacts/evaluate/report.html").exists() and (pipeline / "runs/mlflow.db").exists()
    assert SECRET in (pipeline / ".git/config").read_text()  # as it was when the pipeline ran
    assert places_of_secret(pipeline) == []


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (["python", "-m", "bertline", "configure", f"tracking.uri={SERVER}"], "MLFLOW_TRACKING_TOKEN"),
        (["python", "-m", "bertline", "configure", f"tracking.uri={SERVER}", "--save"], "MLFLOW_TRACKING_TOKEN"),
        (["python", "pipelines/pretrain.py", f"tracking.studies_url={STUDIES}"], "BERTLINE_STUDIES_URL"),
        (["python", "-m", "bertline", "send", f"tracking.uri={SERVER}"], "MLFLOW_TRACKING_TOKEN"),
        (["python", "pipelines/sweep.py", "task_name=docs_match", f"sweep.encoders=[{TOKEN}]"], "HF_TOKEN"),
        (["dvc", "exp", "run", "-S", f"tracking.uri={SERVER}"], "MLFLOW_TRACKING_TOKEN"),
    ],
    ids=["configure", "save", "pretrain", "send", "sweep", "experiment"],
)
def test_a_secret_in_an_override_is_refused_and_left_nowhere(pipeline, run, command, advice) -> None:
    done = run(pipeline, *command)
    assert done.returncode != 0
    assert advice in done.stderr + done.stdout
    assert SECRET not in done.stderr + done.stdout
    assert places_of_secret(pipeline) == []
    committed = subprocess.run(["git", "log", "--all", "--patch"], cwd=pipeline, capture_output=True, check=True)
    assert SECRET.encode() not in committed.stdout


def test_a_remote_with_its_key_in_the_file_that_git_tracks_is_refused(pipeline: Path, run: Run) -> None:
    run(pipeline, "dvc", "remote", "add", "--default", "store", "s3://bucket/bertline")
    key = ["dvc", "remote", "modify", "store", "secret_access_key", SECRET]
    assert run(pipeline, *key).returncode == 0
    refused = run(pipeline, sys.executable, "-m", "bertline", "configure")
    assert refused.returncode == 1 and "AWS_SECRET_ACCESS_KEY" in refused.stderr
    assert SECRET not in refused.stderr + refused.stdout
    run(pipeline, "dvc", "remote", "modify", "--unset", "store", "secret_access_key")
    assert run(pipeline, *key[:3], "--local", *key[3:]).returncode == 0
    assert run(pipeline, sys.executable, "-m", "bertline", "configure").returncode == 0
    assert places_of_secret(pipeline) == [".dvc/config.local"]
    assert smoke.listed(["git", "check-ignore", "--no-index", ".dvc/config.local"]) == [".dvc/config.local"]
