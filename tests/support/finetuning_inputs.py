"""A tiny encoder, a task that it can learn, and a sweep of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import tiny
from bertline.finetuning.config import FineTuningConfig
from bertline.foundation.files import read_json_lines
from bertline.foundation.manifests import write_manifest
from bertline.kinds.classification import ClassificationTaskConfig
from bertline.sweep.config import NoPrunerConfig, PlannedSamplerConfig, SweepConfig
from bertline.tasks.config import ChoiceSpace
from bertline.tasks.source_config import TableSourceConfig
from bertline.tasks.stored_rows import TASK_FORMAT, TASK_KIND, TextRows, write_rows
from tiny import WORDS, runtime

NUM_ROWS = {"train": 128, "dev": 64, "test": 96}
LABELS = ["low", "high"]


def write_encoder(folder: Path, **changes: Any) -> Path:
    """A Hugging Face folder of one small layer and a vocabulary of whole words."""
    small = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 32}
    return tiny.write_encoder(folder, **{**small, **changes})


def learnable_rows(num_rows: int, *, seed: int = 0, pairs: bool = False) -> TextRows:
    """Rows whose label is which half of the vocabulary their words are from; lengths differ."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, num_rows)
    lengths = random.integers(2, 9, num_rows)

    def text(row: int) -> str:
        return " ".join(WORDS[labels[row] * 20 + word] for word in random.integers(0, 20, lengths[row]))

    texts = [text(row) for row in range(num_rows)]
    second = [text(row) for row in range(num_rows)] if pairs else None
    return TextRows([str(row) for row in range(num_rows)], texts, second, labels.astype(np.int64))


def write_task(folder: Path, *, pairs: bool = False) -> Path:
    """The artifact of a task with the labels `low` and `high`."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (split, num_rows) in enumerate(NUM_ROWS.items()):
        write_rows(folder, split, learnable_rows(num_rows, seed=seed, pairs=pairs))
    content = {
        "task": "halves", "task_kind": "classification", "labels": LABELS, "metric": "accuracy", "counts": NUM_ROWS,
        "dropped": {}, "source": "table", "versions": {}, "pair": pairs,
        "labels_by_split": {split: {"low": 1, "high": 1} for split in NUM_ROWS},
    }  # fmt: skip
    write_manifest(folder, kind=TASK_KIND, format_version=TASK_FORMAT, content=content)
    return folder


def fine_tuning(**changes: Any) -> FineTuningConfig:
    recipe = tiny.defaults("sweep/base/recipe")["fine_tuning"]
    return FineTuningConfig(**{**recipe, "learning_rate": 3e-3, "batch_size": 16, **changes})


def table_source(**changes: Any) -> TableSourceConfig:
    own = {"path": "data/tasks/halves", "encoding": "utf-8"}
    return TableSourceConfig(**tiny.defaults("task/base/table", **{**own, **changes}))


def task(**changes: Any) -> ClassificationTaskConfig:
    own = tiny.task_fields(max_length=16, num_train_rows=96, label_efficiency_rows=(32, 96), split_seed=0)
    fields = tiny.defaults("task/base/classification", source=table_source(), window_overlap=4)
    return ClassificationTaskConfig(**{**fields, **own, **changes})


def sweep(**changes: Any) -> SweepConfig:
    """A grid of six points, two of them too slow to learn anything."""
    fields: dict[str, Any] = {
        "num_trials": 6, "sampler": PlannedSamplerConfig(kind="grid"),
        "pruner": NoPrunerConfig(kind="none"), "fine_tuning": fine_tuning(num_epochs=6),
        "space": {
            "learning_rate": ChoiceSpace(kind="choice", values=(1e-6, 1e-2, 2e-2)),
            "batch_size": ChoiceSpace(kind="choice", values=(16.0, 32.0)),
        },
        "task_spaces": True, "num_seeds": 2, "num_label_efficiency_seeds": 1, "precision": "fp32",
        "random_weights_baseline": "always", "random_weights_epochs": (0.5, 1.0, 2.0), "exported": "own",
    }  # fmt: skip
    return SweepConfig(**{**tiny.defaults("sweep/base/recipe"), **fields, **changes})


def write_inputs(folder: Path) -> None:
    write_encoder(folder / "encoder")
    write_task(folder / "task")


def sweep_job(folder: Path, run_folder: Path, **changes: Any) -> Any:
    """The sweep of the inputs in a folder."""
    from bertline.sweep.job import SweepJob  # brings Optuna, which the tests of fine-tuning itself do not need

    fields: dict[str, Any] = {
        "task_name": "halves", "task": task(), "sweep": sweep(), "runtime": runtime(), "task_folder": folder / "task",
        "pretrain_folder": folder / "encoder", "run_folder": run_folder,
        "studies_url": f"sqlite:///{run_folder.resolve()}/studies.db",
    }  # fmt: skip
    return SweepJob(**{**fields, **changes})


def swept(job: Any) -> tuple[dict[str, float], dict[str, Any]]:
    """Run a sweep in this process; return its figures and its result.json."""
    from bertline.sweep.run import run_sweep

    figures = run_sweep(job)
    return figures, json.loads((job.run_folder / "result" / "result.json").read_text())


def events_of(job: Any) -> list[dict[str, Any]]:
    """The events of a sweep, but for one that is being written."""
    return read_json_lines(job.run_folder / "events.jsonl")
