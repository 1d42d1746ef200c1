"""`pipelines/plan.py` as people run it: the figures, the advice that can be taken as it is printed, the errors."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bertline.foundation.manifests import write_manifest
from fork_server import run_recipe

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/howto/gpu.md"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The recipes and conf/ without lasting choices; nothing has been run or measured there."""
    for name in ("pipelines", "conf"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("local", "__pycache__"))
    return tmp_path


def run(repository: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True)


def plan(repository: Path, *overrides: str, by_itself: bool = False) -> tuple[str, dict[str, Any]]:
    """What is printed, and the content of the file that it names at the end; `by_itself`, as people start it."""
    if by_itself:
        done = run(repository, sys.executable, "pipelines/plan.py", *overrides)
    else:
        done = run_recipe(repository, "pipelines/plan.py", *overrides)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((repository / done.stdout.splitlines()[-1]).read_text())


def test_the_present_configuration_is_forecast_and_nothing_is_touched(repository: Path) -> None:
    before = sorted(path for path in repository.rglob("*") if path.is_file())
    arguments = ("experiment=bert_base", "plan.device=a100", "plan.price_per_hour=2", "plan.corpus_tokens=3.3e9")
    text, content = plan(repository, *arguments, by_itself=True)
    assert content["parameters"] == 110_106_428
    assert content["hours"] == pytest.approx(83.31, abs=0.01)
    assert content["money"] == pytest.approx(166.61, abs=0.02)
    assert (content["fits"], content["device"]["precision"]) == (True, "bf16")
    for said in ("110 M parameters", "42.6 B", "83.3 h (3.5 days)", "166.61, between", "not measured: 24.0%"):
        assert said in text
    (shown,) = re.findall(r"```console\n\$ python (.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    command, *lines = shown.splitlines()
    assert command == shlex.join(["pipelines/plan.py", *arguments])
    assert set(lines) - {"..."} <= set(text.splitlines())
    after = sorted(path for path in repository.rglob("*") if path.is_file())
    written = {path.relative_to(repository) for path in set(after) - set(before)}
    written = {path for path in written if "__pycache__" not in path.parts and path.parts[:2] != ("runs", "hydra")}
    assert [path.parts[:2] for path in written] == [("runs", "plan")]


@pytest.mark.parametrize(
    "asked",
    [
        ("plan.device=a100", "plan.hours=24", "plan.corpus_tokens=4e9", "tokenizer=wordpiece_30k"),
        ("plan.device=t4", "plan.hours=5", "plan.corpus_tokens=1e9", "experiment=smoke"),
        ("plan.device=h100", "plan.num_devices=4", "plan.hours=10", "plan.corpus_tokens=1e11", "optimizer=muon",
         "schedule=wsd", "model=large"),
    ],
    ids=["default", "smoke", "muon"],
)  # fmt: skip
def test_what_is_advised_is_valid_as_printed_and_takes_the_hours(repository: Path, asked: tuple[str, ...]) -> None:
    text, content = plan(repository, *asked)
    (command,) = [line for line in text.splitlines() if line.startswith("python pipelines/configure.py")]
    assert text.count("\n> ") == 1
    assert re.search(rf"^> {content['chosen']} ", text, flags=re.MULTILINE)
    overrides = shlex.split(command)[2:-1]
    assert overrides == content["overrides"]
    checked = run_recipe(repository, "pipelines/configure.py", *overrides)
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.startswith("valid; it ")  # `not valid` holds the word, too
    place = [one for one in asked if one.startswith(("plan.device", "plan.num_devices", "plan.corpus_tokens"))]
    _, again = plan(repository, *overrides, *place)
    hours = content["asked"]["hours"]
    assert 0.85 * hours < again["hours"] <= hours
    (chosen,) = [one for one in content["candidates"] if one["size"] == content["chosen"]]
    assert again["parameters"] == chosen["forecast"]["parameters"]
    assert again["fits"]


@pytest.mark.parametrize(("decay", "kept"), [(200_000, False), (20_000, True)])
def test_decay_steps_that_the_planned_run_has_no_room_for_become_a_fifth_of_it(
    repository: Path, decay: int, kept: bool
) -> None:
    asked = ("plan.device=A100", "plan.hours=24", "plan.corpus_tokens=4e9", "schedule=wsd")
    text, content = plan(repository, *asked, f"schedule.num_decay_steps={decay}")
    (given,) = [one for one in content["overrides"] if one.startswith("schedule.num_decay_steps=")]
    assert given == f"schedule.num_decay_steps={decay if kept else 'null'}"
    assert (f"# schedule.num_decay_steps is {decay}, more than" in text) != kept


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


def test_a_checkpoint_to_go_on_from_keeps_its_size_and_rate(repository: Path) -> None:
    continued = ("experiment=continued", "pretrain.start_from=some/model", "model=medium")
    _, content = plan(repository, *continued, "plan.device=a100", "plan.hours=2", "plan.corpus_tokens=1e12")
    assert [one["size"] for one in content["candidates"]] == ["medium"]
    assert not [one for one in content["overrides"] if one.startswith(("optimizer.lr=", "model.hidden_size="))]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("plan.hours=0",), "hours must be above 0"),
        (("plan.hours=-2",), "hours must be above 0"),
        (("plan.device=gtx1080",), "plan.device is 'gtx1080', which is not in the table. Known: cpu"),
        (("plan.device=t4", "pretrain.precision=bf16"), "has no bf16 in hardware"),
        (
            ("plan.device=t4", "plan.hours=1", "pretrain.extends=0123456789ab"),
            "pretrain.extends names one to resume from",
        ),
        (("plan.device=t4", "plan.hours=lots"), "plan.hours"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(repository: Path, asked: tuple[str, ...], said: str) -> None:
    done = run_recipe(repository, "pipelines/plan.py", *asked)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (repository / "runs/plan").exists()


def test_a_plan_for_a_gpu_starts_without_pytorch(repository: Path) -> None:
    code = "import sys, runpy\nsys.modules['torch'] = None\nsys.argv = ['plan.py', 'plan.device=a100']\n"
    path = f"sys.path.insert(0, {str(repository / 'pipelines')!r})\n"
    start = f"runpy.run_path({str(repository / 'pipelines/plan.py')!r}, run_name='__main__')"
    done = run(repository, sys.executable, "-c", code + path + start)
    assert done.returncode == 0, done.stderr
