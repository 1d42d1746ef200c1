"""`bertline plan` as people run it: the figures, the documented page, the errors."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bertline.foundation.manifests import write_manifest
from fork_server import run_bertline
from projects import copy_project

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/howto/gpu.md"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A project without lasting choices; nothing has been run or measured there."""
    return copy_project(tmp_path)


def run(repository: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True)


def plan(repository: Path, *overrides: str, by_itself: bool = False) -> tuple[str, dict[str, Any]]:
    """What is printed, and the content of the file that it names at the end; `by_itself`, as people start it."""
    if by_itself:
        done = run(repository, sys.executable, "-m", "bertline", "plan", *overrides)
    else:
        done = run_bertline(repository, "plan", *overrides)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((repository / done.stdout.splitlines()[-1]).read_text())


def test_the_present_configuration_is_forecast_and_nothing_is_touched(repository: Path) -> None:
    before = sorted(path for path in repository.rglob("*") if path.is_file())
    arguments = ("experiment=bert_base", "plan.device=a100", "plan.price_per_hour=2", "plan.corpus_tokens=3.3e9")
    text, content = plan(repository, *arguments, by_itself=True)
    assert content["parameters"] == 110_106_428
    assert content["hours"] == pytest.approx(83.31, abs=0.01)
    assert content["money"] == pytest.approx(166.61, abs=0.02)
    assert (content["fits"], content["precision"]) == (True, "bf16")
    assert max(map(len, text.splitlines())) <= 100
    (shown,) = re.findall(r"```console\n\$ (bertline .*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    command, *lines = shown.splitlines()
    assert command == shlex.join(["bertline", "plan", *arguments])
    assert set(lines) - {"..."} <= set(text.splitlines())
    after = sorted(path for path in repository.rglob("*") if path.is_file())
    written = {path.relative_to(repository) for path in set(after) - set(before)}
    written = {path for path in written if "__pycache__" not in path.parts and path.parts[:2] != ("runs", "hydra")}
    assert [path.parts[:2] for path in written] == [("runs", "plan")]


def test_examples_that_are_made_are_counted(repository: Path) -> None:
    facts = {"examples": 2000, "tokens": 120_000}
    content = {
        "dupe_factor": 1,
        "corpus": {"train": {"tokens": 114_000}},
        "lengths": {"64": {"train": facts}, "16": {"train": {"examples": 6000, "tokens": 90_000}}},
    }
    write_manifest(repository / "artifacts/examples", kind="examples", format_version=1, content=content)
    phases = (
        "pretrain.phases=[{steps: 600, max_length: 16, global_batch_size: 256},"
        "{steps: 4500, max_length: 64, global_batch_size: 64}]"
    )
    text, content = plan(repository, "plan.device=t4", "examples.lengths=[16,64]", phases)
    assert [phase["epochs"] for phase in content["phases"]] == [600 * 256 / 6000, 4500 * 64 / 2000]
    assert content["tokens"] == 600 * 256 * 15 + 4500 * 64 * 60
    assert "counted in artifacts/examples" in text
    lock = "stages: {corpus: {params: {params.yaml: {corpus: {kind: text, path: /another/text}}}}}"
    (repository / "dvc.lock").write_text(lock)
    text, content = plan(repository, "plan.device=t4")
    assert content["epochs"] is None
    assert "unknown: the corpus (python_docs) has not been made yet" in text


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("plan.corpus_tokens=0",), "corpus_tokens must be above 0"),
        (("plan.hours=24",), "plan.hours is no key of the configuration"),
        (("plan.device=gtx1080",), "plan.device is 'gtx1080', which is not in the table. Known: cpu"),
        (("plan.device=t4", "pretrain.precision=bf16"), "has no bf16 in hardware"),
        (
            ("plan.device=t4", "experiment=mlm", "model=modernbert_base", "tasks.docs_match.shared_tokens=plain",
             "tasks.docs_parameters.word_case=plain"),
            "plan knows the memory and the operations of BERT",
        ),
    ],
)  # fmt: skip
def test_nonsense_is_refused_in_a_sentence(repository: Path, asked: tuple[str, ...], said: str) -> None:
    done = run_bertline(repository, "plan", *asked)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (repository / "runs/plan").exists()


def test_a_plan_for_a_gpu_starts_without_pytorch(repository: Path) -> None:
    code = "import sys, runpy\nsys.modules['torch'] = None\nsys.argv = ['bertline', 'plan', 'plan.device=a100']\n"
    done = run(repository, sys.executable, "-c", code + "runpy.run_module('bertline', run_name='__main__')")
    assert done.returncode == 0, done.stderr
