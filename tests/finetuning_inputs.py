"""A tiny encoder, a task that it can learn, and a sweep of it: for tests, and as a script that a test can kill.

python tests/finetuning_inputs.py FOLDER NUM_WORKERS    # runs the sweep of `write_inputs(FOLDER)`
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from bertline.finetuning.config import FineTuningConfig
from bertline.foundation.files import write_json
from bertline.foundation.manifests import write_manifest
from bertline.modeling.bert import BertModel
from bertline.modeling.config import ModelConfig
from bertline.modeling.huggingface import save_model
from bertline.modeling.initialization import initialize
from bertline.sweep.config import GridSamplerConfig, NoPrunerConfig, SweepConfig
from bertline.sweep.run import SweepJob, run_sweep
from bertline.tasks.config import ChoiceSpace, ClassificationTaskConfig, TableSourceConfig
from bertline.tasks.storage import FORMAT_VERSION, KIND, Rows, write_rows
from bertline.training.config import RuntimeConfig

WORDS = [f"word{number}" for number in range(40)]
NUM_ROWS = {"train": 128, "dev": 64, "test": 96}


def write_encoder(folder: Path) -> Path:
    """A Hugging Face folder of one small layer and a vocabulary of whole words."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    write_json(folder / "tokenizer_config.json", {"do_lower_case": True})
    config = ModelConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        type_vocab_size=2,
        hidden_act="gelu",
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        initializer_range=0.02,
        layer_norm_eps=1e-12,
    )
    model = BertModel(config, vocab_size=len(pieces), pad_token_id=0)
    initialize(model, config, seed=7)
    save_model(model, folder)
    return folder


def learnable_rows(num_rows: int, *, seed: int = 0, pairs: bool = False) -> Rows:
    """Rows whose label is which half of the vocabulary their words are from; lengths differ."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, num_rows)
    lengths = random.integers(2, 9, num_rows)

    def text(row: int) -> str:
        return " ".join(WORDS[labels[row] * 20 + word] for word in random.integers(0, 20, lengths[row]))

    texts = [text(row) for row in range(num_rows)]
    second = [text(row) for row in range(num_rows)] if pairs else None
    return Rows([str(row) for row in range(num_rows)], texts, second, labels.astype(np.int64))


def write_task(folder: Path, *, pairs: bool = False) -> Path:
    """The artifact of a task with the labels `low` and `high`."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (split, num_rows) in enumerate(NUM_ROWS.items()):
        write_rows(folder, split, learnable_rows(num_rows, seed=seed, pairs=pairs))
    content = {"labels": ["low", "high"], "metric": "accuracy", "counts": NUM_ROWS, "pair": pairs}
    write_manifest(folder, kind=KIND, format_version=FORMAT_VERSION, content=content)
    return folder


def fine_tuning(**changes: Any) -> FineTuningConfig:
    fields: dict[str, Any] = {
        "learning_rate": 3e-3,
        "batch_size": 16,
        "num_epochs": 3,
        "warmup_fraction": 0.1,
        "weight_decay": 0.01,
        "dropout_prob": 0.1,
        "max_grad_norm": 1.0,
    }
    return FineTuningConfig(**{**fields, **changes})


def runtime(**changes: Any) -> RuntimeConfig:
    fields: dict[str, Any] = {
        "device": "cpu",
        "num_devices": 1,
        "num_nodes": 1,
        "num_workers": 0,
        "num_threads": 1,
        "micro_batch_size": None,
        "compile": "off",
        "attention": "auto",
        "launcher": "local",
        "sweep_workers": 1,
        "runs_folder": "runs",
        "progress_every_s": 10.0,
    }
    return RuntimeConfig(**{**fields, **changes})


def task(**changes: Any) -> ClassificationTaskConfig:
    source = TableSourceConfig(
        kind="table",
        path="data/tasks/halves",
        format="auto",
        train_file=None,
        dev_file=None,
        test_file=None,
        text_column="text",
        text_pair_column=None,
        label_column="label",
        header=True,
        quoting=True,
        encoding="utf-8",
    )
    fields: dict[str, Any] = {
        "kind": "classification",
        "source": source,
        "labels": None,
        "metric": "accuracy",
        "max_length": 16,
        "num_train_rows": 96,
        "label_efficiency_rows": (32, 96),
        "dev_fraction": 0.1,
        "test_fraction": 0.1,
        "split_seed": 0,
        "num_trials": None,
        "space": {},
    }
    return ClassificationTaskConfig(**{**fields, **changes})


def sweep(**changes: Any) -> SweepConfig:
    """A grid of six points, two of them too slow to learn anything."""
    fields: dict[str, Any] = {
        "seed": 0,
        "num_trials": 6,
        "sampler": GridSamplerConfig(kind="grid"),
        "pruner": NoPrunerConfig(kind="none"),
        "fine_tuning": fine_tuning(num_epochs=6),
        "space": {
            "learning_rate": ChoiceSpace(kind="choice", values=(1e-6, 1e-2, 2e-2)),
            "batch_size": ChoiceSpace(kind="choice", values=(16.0, 32.0)),
        },
        "num_seeds": 2,
        "num_label_efficiency_seeds": 1,
        "precision": "fp32",
        "random_weights_baseline": True,
        "max_retries": 2,
    }
    return SweepConfig(**{**fields, **changes})


def write_inputs(folder: Path) -> None:
    write_encoder(folder / "encoder")
    write_task(folder / "task")


def sweep_job(folder: Path, run_folder: Path, **changes: Any) -> SweepJob:
    """The sweep of the inputs in a folder."""
    fields: dict[str, Any] = {
        "task_name": "halves",
        "task": task(),
        "sweep": sweep(),
        "runtime": runtime(),
        "task_folder": folder / "task",
        "pretrain_folder": folder / "encoder",
        "run_folder": run_folder,
    }
    return SweepJob(**{**fields, **changes})


if __name__ == "__main__":
    inputs = Path(sys.argv[1])
    run_sweep(sweep_job(inputs, inputs / "run", runtime=runtime(sweep_workers=int(sys.argv[2]))))
