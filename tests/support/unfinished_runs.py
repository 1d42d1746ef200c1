"""Pretrainings opened as their recipe opens them, on made-up examples, and stopped on the way."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

import probing_inputs as language
from bertline.foundation.metrics_log import read_metrics
from bertline.orchestration import worker
from bertline.orchestration.stage_run import StageRun, open_stage
from bertline.orchestration.status import read_status
from bertline.pretraining.validation import ValidationProbe

STEPS = 60
WORK = "bertline.pretraining.run:run"
CODE = {"bertline.modeling.bert": "as it is", "bertline.modeling.attention": "as it is"}
BEGIN = (
    "experiment=smoke",
    f"examples.lengths=[{language.LENGTH}]",
    "schedule.num_warmup_steps=1",
    # The loss of a dropped unit would tell a shifted generator from one in its place.
    "model.hidden_dropout_prob=0.1",
    f"pretrain.phases=[{{steps: {STEPS}, max_length: {language.LENGTH}, global_batch_size: 4}}]",
    "pretrain.validate_every_steps=10",
    "pretrain.checkpoint_every_steps=10",
    "pretrain.linear_probe=null",
    "runtime.device=cpu",
    "tracking.enabled=false",
)


def train(mapping: dict[str, Any], *, stop_at: int | None = None) -> Path:
    """Open the stage as its recipe does and work in this process; `stop_at` sends a signal at a validation step."""
    probe = ValidationProbe.probe

    def stopping(self: ValidationProbe, step: int) -> dict[str, float]:
        if step == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return probe(self, step)

    with open_stage("pretrain", mapping) as stage, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ValidationProbe, "probe", stopping)
        patch.setattr("bertline.pretraining.throughput.peak_rate", lambda *_: 1e11)
        ended = worker.main(stage.folder, WORK)
    assert (ended == 0) == (stop_at is None), read_status(stage.folder)
    return stage.folder


def opening(mapping: dict[str, Any]) -> StageRun:
    """Open the stage and do nothing."""
    with open_stage("pretrain", mapping) as stage:
        return stage


def looks_unfinished(folder: Path, step: int) -> None:
    """Give an opened run folder what a killed worker leaves, as far as names go."""
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / f"step-{step:08d}.pt").write_bytes(b"weights")
    (folder / "metrics.jsonl").write_text('{"step": 0, "time_s": 0.0, "metrics": {"val/mlm_loss": 4.0}}\n')


def frozen(folder: Path) -> dict[str, Any]:
    return yaml.safe_load((folder / "config.yaml").read_text())


def curve(folder: Path, kind: str) -> dict[int, dict[str, float]]:
    """The rows of one kind by step; a step that stood twice would be seen by its count."""
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if any(key.startswith(kind) for key in row.metrics)]
    assert len({row.step for row in rows}) == len(rows)
    return {row.step: {k: v for k, v in row.metrics.items() if not k.startswith("perf/")} for row in rows}
