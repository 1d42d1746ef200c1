"""What the worker makes of a frozen configuration, in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

import probing_inputs as language
from bertline.foundation.metrics_log import read_metrics
from bertline.line import worker
from bertline.line.status import read_status


def test_the_worker_hands_the_linear_probe_to_pretraining(
    composed: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
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
    assert worker.main(folder) == 0
    rows = read_metrics(folder / "metrics.jsonl")
    assert [row.step for row in rows if "probe/bigram_shift_accuracy" in row.metrics] == [0, 2, 4]
    assert "probe/odd_word_accuracy" in read_status(folder).metrics
