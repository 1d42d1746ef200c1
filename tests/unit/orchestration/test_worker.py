"""What the worker makes of a frozen configuration, in this process."""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import probing_inputs as language
from bertline.evaluation.facts import read_provenance
from bertline.foundation.errors import BertlineError, DataError
from bertline.foundation.files import sha256_of_path
from bertline.foundation.metrics_log import read_metrics
from bertline.orchestration import worker
from bertline.orchestration.changed import marks_of
from bertline.orchestration.status import read_status

SWEEP = "bertline.sweep.run:run"


def test_the_worker_hands_the_linear_probe_to_pretraining(
    composed: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtimes = []
    monkeypatch.setattr(worker, "start_compiler", lambda runtime, environment: runtimes.append(runtime))
    language.write_language(tmp_path, num_train=60, num_validation=60)
    config = composed(
        "experiment=smoke",
        f"examples.lengths=[{language.LENGTH}]",
        "schedule.num_warmup_steps=1",
        f"pretrain.phases=[{{steps: 4, max_length: {language.LENGTH}, global_batch_size: 8}}]",
        "pretrain.linear_probe={every_steps: 2, max_sentences: 90}",
        "runtime.device=cpu",
    )
    folder = tmp_path / "run"
    folder.mkdir()
    inputs = {name: str(tmp_path / name) for name in ("examples", "tokenizer")}
    frozen = {"stage": "pretrain", "task_name": None, "inputs": inputs, "config": config}
    (folder / "config.yaml").write_text(yaml.safe_dump(frozen))
    assert worker.main(folder, "bertline.pretraining.run:run") == 0
    assert [runtime.device for runtime in runtimes] == ["cpu"]
    rows = read_metrics(folder / "metrics.jsonl")
    assert [row.step for row in rows if "probe/bigram_shift_accuracy" in row.metrics] == [0, 2, 4]
    assert "probe/odd_word_accuracy" in read_status(folder).metrics


def test_a_result_says_where_it_comes_from(opened: Callable[[Work], Path]) -> None:
    folder = opened(lambda: None)
    frozen = yaml.safe_load((folder / "config.yaml").read_text())
    made_of = {"versions": {"torch": "2.13.0"}}
    more = {**frozen, "commit": "abc", "fingerprint": "1ed2", "made_of": made_of}
    (folder / "config.yaml").write_text(yaml.safe_dump(more))
    assert worker.main(folder, SWEEP) == 0
    found = read_provenance(folder / "result")
    assert found is not None
    assert (found.stage, found.commit, found.fingerprint) == ("sweep@docs_match", "abc", "1ed2")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", found.ended)
    assert found.versions["torch"] == "2.13.0" and "CPU core" in found.machine
    assert platform.node() not in found.machine
    assert read_status(folder).result_sha256 == sha256_of_path(folder / "result")


Work = Callable[[], None]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """The file of a sweep's only input."""
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "train.parquet").write_bytes(b"old")
    return tmp_path / "tasks" / "train.parquet"


@pytest.fixture
def opened(
    composed: Callable[..., dict[str, Any]], rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Work], Path]:
    """Freezes a run folder with the rows as they are; its worker does `work` and writes a result."""

    def freeze(work: Work) -> Path:
        def worked(function: str, frozen: dict[str, Any], config: object, folder: Path) -> dict[str, float]:
            work()
            (folder / "result").mkdir(exist_ok=True)
            (folder / "starts").open("a").write("x")
            return {"test/accuracy": 0.5}

        monkeypatch.setattr(worker, "_work", worked)
        inputs = {"tasks": rows.parent}
        frozen = {
            "stage": "sweep",
            "task_name": "docs_match",
            "inputs": {key: str(path) for key, path in inputs.items()},
            "input_marks": marks_of(inputs),
            "made_of": {"inputs": {key: sha256_of_path(path) for key, path in inputs.items()}},
            "config": composed("experiment=smoke"),
        }
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(frozen))
        return folder

    return freeze


def test_a_worker_whose_inputs_changed_before_it_began_fails_and_does_nothing(
    opened: Callable[[Work], Path], rows: Path
) -> None:
    folder = opened(lambda: None)
    rows.write_bytes(b"new")
    assert worker.main(folder, SWEEP) == 1
    status = read_status(folder)
    assert status.state == "failed" and f"changed after it was opened: {rows.parent}" in status.message
    assert not (folder / "starts").exists()
    rows.write_bytes(b"old")
    assert worker.main(folder, SWEEP) == 0


@pytest.mark.parametrize("change", ["content", "gone"])
def test_a_result_of_inputs_that_changed_meanwhile_is_never_that_of_the_frozen_ones(
    opened: Callable[[Work], Path], rows: Path, change: str
) -> None:
    def changed() -> None:
        rows.unlink()
        if change == "content":
            rows.write_bytes(b"new")

    folder = opened(changed)
    assert worker.main(folder, SWEEP) == 1
    status = read_status(folder)
    assert status.state == "failed" and f"changed while it ran: {rows.parent}" in status.message
    # Trials and checkpoints of other content lie in the folder, also once the old content is back.
    rows.write_bytes(b"old")
    assert worker.main(folder, SWEEP) == 1
    assert read_status(folder) == status
    assert (folder / "starts").read_text() == "x"


@pytest.mark.parametrize("error", [DataError("row 3 has no text"), KeyboardInterrupt(), RuntimeError("torn")])
def test_inputs_that_changed_before_the_work_broke_off_fail_it_too(
    opened: Callable[[Work], Path], rows: Path, error: BaseException
) -> None:
    def broken_off() -> None:
        rows.write_bytes(b"new")
        raise error

    folder = opened(broken_off)
    assert worker.main(folder, SWEEP) == 1
    status = read_status(folder)
    assert status.inputs_changed and f"changed while it ran: {rows.parent}" in status.message
    assert (str(error) or "stopped by a signal") in status.message


def test_a_run_whose_inputs_are_gone_resumes_once_they_are_back(opened: Callable[[Work], Path], rows: Path) -> None:
    """As while the stage that makes them runs again: DVC removes its output first."""
    folder = opened(lambda: shutil.rmtree(rows.parent) if not (folder / "starts").exists() else None)
    assert worker.main(folder, SWEEP) == 1
    status = read_status(folder)
    assert status.state == "failed" and not status.inputs_changed and f"is gone: {rows.parent}" in status.message
    rows.parent.mkdir()
    rows.write_bytes(b"old")
    assert worker.main(folder, SWEEP) == 0
    assert (folder / "starts").read_text() == "xx"


def test_inputs_that_were_written_again_with_the_same_content_are_the_same(
    opened: Callable[[Work], Path], rows: Path
) -> None:
    def written_again() -> None:
        rows.unlink()
        rows.write_bytes(b"old")

    assert worker.main(opened(written_again), SWEEP) == 0


def test_inputs_that_nobody_wrote_to_are_not_read_again(
    opened: Callable[[Work], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = opened(lambda: None)
    monkeypatch.delattr("bertline.orchestration.changed.sha256_of_path")
    assert worker.main(folder, SWEEP) == 0


@pytest.mark.parametrize("function", ["os:getcwd", "bertline.sweep.run", "bertlines.sweep.run:run"])
def test_a_worker_runs_functions_of_bertline_alone(function: str) -> None:
    with pytest.raises(BertlineError, match=f"'{function}' does not name the work; expected bertline.MODULE:FUNCTION"):
        worker._imported(function)
