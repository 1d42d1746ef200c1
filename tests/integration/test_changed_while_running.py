"""With DVC itself: a configuration that changes while a stage runs is not recorded as what made the result."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from bertline.config import SECTIONS

ROOT = Path(__file__).resolve().parents[2]
STAGE = """
import pathlib, time, yaml
from bertline.run.stage import open_stage
from bertline.stages.tokenizer import Tokenizer
Tokenizer.show, Tokenizer.page = lambda *given: None, None
with open_stage("tokenizer", yaml.safe_load(open("params.yaml"))) as stage:
    stage.output.mkdir(parents=True)
    (stage.output / "vocab.txt").write_text(str(stage.config.tokenizer.vocab_size))
    pathlib.Path("began").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.05)
    stage.finish({"size": 1.0})
"""


def params(*overrides: str) -> str:
    chosen = ["experiment=smoke", "tracking.enabled=false", *overrides]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        mapping = OmegaConf.to_container(compose("config", overrides=chosen), resolve=True)
    return yaml.safe_dump({section: mapping[section] for section in SECTIONS})  # type: ignore[index,call-overload]


def test_dvc_does_not_record_a_configuration_that_came_while_the_stage_ran(tmp_path: Path) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DVC_", "PYTEST_"))}
    environment = {**kept, "PYTHONPATH": str(ROOT / "src"), "DVC_NO_ANALYTICS": "1"}
    dvc = [sys.executable, "-m", "dvc"]
    subprocess.run([*dvc, "init", "--no-scm", "-q"], cwd=tmp_path, env=environment, check=True)
    (tmp_path / "artifacts/corpus").mkdir(parents=True)
    (tmp_path / "artifacts/corpus/text").write_text("one")
    (tmp_path / "stage.py").write_text(STAGE)
    entry = {
        "cmd": f"{sys.executable} stage.py",
        "params": ["tokenizer"],
        "deps": ["artifacts/corpus"],
        "outs": ["artifacts/tokenizer"],
    }
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"tokenizer": entry}}))
    (tmp_path / "params.yaml").write_text(params("tokenizer.vocab_size=700"))

    running = subprocess.Popen([*dvc, "repro"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "began").exists():
        assert running.poll() is None
        time.sleep(0.05)
    (tmp_path / "params.yaml").write_text(params("tokenizer.vocab_size=800"))
    (tmp_path / "go").touch()
    _, said = running.communicate()
    assert running.returncode != 0
    assert "tokenizer.vocab_size (was 700, is 800)" in said
    assert not (tmp_path / "dvc.lock").exists()
    assert [path.read_text() for path in (tmp_path / "runs/tokenizer").glob("*/result/vocab.txt")] == ["700"]

    subprocess.run([*dvc, "repro", "-q"], cwd=tmp_path, env=environment, check=True)
    recorded = yaml.safe_load((tmp_path / "dvc.lock").read_text())["stages"]["tokenizer"]["params"]["params.yaml"]
    assert recorded["tokenizer"]["vocab_size"] == 800
    assert (tmp_path / "artifacts/tokenizer/vocab.txt").read_text() == "800"
