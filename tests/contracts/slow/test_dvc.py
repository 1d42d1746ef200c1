"""What bertline relies on in DVC. A failure here says which part of `dvc.yaml` or of the recipes an upgrade touches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml


def stages(content: dict[str, Any], **more: Any) -> None:
    Path("dvc.yaml").write_text(yaml.safe_dump({**more, "stages": content}, sort_keys=False), encoding="utf-8")


def test_an_experiment_composes_with_hydra_and_a_plain_repro_does_not_so_configure_does(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    for name, size in (("tiny", 1), ("base", 12)):
        Path("conf/model").mkdir(parents=True, exist_ok=True)
        Path(f"conf/model/{name}.yaml").write_text(f"hidden: {size}\n")
    Path("conf/config.yaml").write_text("defaults: [{model: tiny}, _self_]\n")
    Path("params.yaml").write_text("model: {hidden: 0}\n")
    stages({"one": {"cmd": "cp params.yaml out", "params": ["model"], "outs": ["out"]}})
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (
        ["git", "init", "-q"],
        [sys.executable, "-m", "dvc", "init", "-q"],
        [sys.executable, "-m", "dvc", "config", "hydra.enabled", "true"],
        ["git", "add", "."],
        ["git", *identity, "commit", "-q", "-m", "start"],
        [sys.executable, "-m", "dvc", "repro", "-q"],
    ):
        subprocess.run(command, check=True, capture_output=True)
    assert yaml.safe_load(Path("out").read_text()) == {"model": {"hidden": 0}}
    subprocess.run(["git", "add", "."], check=True)
    subprocess.run(["git", *identity, "commit", "-q", "-m", "run"], check=True)
    command = [sys.executable, "-m", "dvc", "exp", "run", "-q", "-S", "model=base"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(Path("out").read_text()) == {"model": {"hidden": 12}}
