"""By hand, a stage reads what was made under its configuration: an artifact, or an earlier stage's result by hand."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import write_json
from bertline.orchestration.changed import tracked_sections
from bertline.orchestration.config import pipeline_config
from bertline.orchestration.fingerprints import code_fingerprint
from bertline.orchestration.stage_run import open_stage
from bertline.orchestration.stages import CODE, stage_named

Composed = Callable[..., dict[str, Any]]
TASK = "docs_library"
STAGES = (("task_data", TASK), ("pretrain", None))


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, composed: Composed) -> None:
    """A working folder in which DVC made an encoder and the rows of a task."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_STAGE", raising=False)
    config = pipeline_config({key: value for key, value in asked(composed).items() if key != "task_name"})
    stages = {}
    for name, task in STAGES:
        stage = stage_named(name)
        output = Path(stage.output.format(task=task))
        output.mkdir(parents=True)
        (output / "content").write_text("by DVC")
        write_json(CODE / name, code_fingerprint(stage))
        code = CODE / name
        stages[f"{name}@{task}" if task else name] = {
            "params": {"params.yaml": tracked_sections(stage, task, config)},
            "deps": [{"path": code.as_posix(), "md5": hashlib.md5(code.read_bytes()).hexdigest()}],
        }
    # DVC writes `1e-12`, PyYAML would write `1.0e-12`.
    lock = yaml.safe_dump({"stages": stages}).replace(".0e-", "e-")
    # A digest that begins like a number, as DVC writes it: without quotes.
    Path("dvc.lock").write_text(lock + "  other:\n    deps:\n    - md5: 13e9fe74780ebb43c50d86766f1550b6\n")


def asked(composed: Composed, *overrides: str) -> dict[str, Any]:
    return composed("experiment=smoke", "tracking.enabled=false", *overrides) | {"task_name": TASK}


def rows_of_sweep(content: dict[str, Any]) -> Path:
    with open_stage("sweep", content) as stage:
        return stage.inputs["tasks"]


@pytest.mark.usefixtures("made")
def test_an_artifact_of_the_same_configuration_is_read(composed: Composed) -> None:
    assert rows_of_sweep(asked(composed, "sweep.num_seeds=1")) == Path(f"artifacts/tasks/{TASK}")


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("override", "path", "command"),
    [
        (f"tasks.{TASK}.split_seed=77", f"artifacts/tasks/{TASK}", f"task_data.py task_name={TASK}"),
        ("pretrain.seed=77", "artifacts/pretrain", "pretrain.py"),
    ],
)
def test_an_artifact_of_another_configuration_is_refused_with_the_command_that_makes_it(
    composed: Composed, override: str, path: str, command: str
) -> None:
    with pytest.raises(ArtifactError, match=f"{path} was made under another configuration") as caught:
        rows_of_sweep(asked(composed, override))
    key = override.split("=")[0]
    assert f"{key} (" in str(caught.value) and "77 here)" in str(caught.value)
    assert f"python pipelines/{command}" in str(caught.value)


@pytest.mark.usefixtures("made")
def test_two_stages_chain_by_hand(composed: Composed) -> None:
    content = asked(composed, f"tasks.{TASK}.split_seed=77")
    with open_stage("task_data", content) as stage:
        stage.output.mkdir(parents=True)
        (stage.output / "content").write_text("by hand")
        stage.finish({"rows": 1.0})
    assert (rows_of_sweep(content) / "content").read_text() == "by hand"
    assert (rows_of_sweep(asked(composed)) / "content").read_text() == "by DVC"


@pytest.mark.usefixtures("made")
def test_other_code_warns_and_a_missing_artifact_names_both_ways(
    composed: Composed, capsys: pytest.CaptureFixture[str]
) -> None:
    content = asked(composed)
    write_json(CODE / "task_data", {"pipelines/task_data.py": "0"})
    assert rows_of_sweep(content) == Path(f"artifacts/tasks/{TASK}")
    assert "was made by other code" in capsys.readouterr().err
    Path(f"artifacts/tasks/{TASK}/content").unlink()
    Path(f"artifacts/tasks/{TASK}").rmdir()
    with pytest.raises(ArtifactError, match=rf"dvc repro task_data@{TASK}`.*python pipelines/task_data.py"):
        rows_of_sweep(content)


@pytest.mark.usefixtures("made")
def test_an_artifact_that_nobody_wrote_down_is_read_as_it_is(composed: Composed) -> None:
    Path("dvc.lock").unlink()
    assert rows_of_sweep(asked(composed, "pretrain.seed=77")) == Path(f"artifacts/tasks/{TASK}")
