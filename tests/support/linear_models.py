"""Baselines of every kind of task that a folder can hold, fitted to a few rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import finetuning_inputs
import tiny
from bertline.baselines.base import BaselineInputs
from bertline.baselines.linear import window_tagger
from bertline.finetuning.task_file import write_task_file
from bertline.kinds.classification import Classification, MultiLabel
from bertline.kinds.regression import Regression, RegressionTaskConfig
from bertline.kinds.token_classification import TokenClassification
from bertline.tasks.stored_rows import MultiLabelRows, NumberRows, TaggedRows, TextRows

SIZES = {"train": 60, "dev": 30, "test": 40}


def drawn(split: str, *, pairs: bool = False, texts: str = "words", num_labels: int = 3) -> Any:
    """Ids, texts and second texts, and a label of each row that its words tell."""
    random, size = np.random.default_rng(len(split)), SIZES[split]
    labels = random.integers(0, num_labels, size)
    words = [[f"Sign_{label}", *(f"w{word}" for word in random.integers(0, 50, 6))] for label in labels]
    marks = ["!?.,;"[label] * 3 for label in labels]
    first = marks if texts == "marks" else [" ".join(row) for row in words]
    second = [" ".join(row[:label]) + " other" for row, label in zip(words, labels, strict=True)] if pairs else None
    return [f"{split}{i}" for i in range(size)], first, second, labels


def baselines(case: str) -> tuple[Any, list[Any], Any]:
    """The baselines of a kind of task, and its test rows."""
    pairs, texts = case == "pairs", "marks" if case == "marks" else "words"
    splits = {name: drawn(name, pairs=pairs or case == "numbers", texts=texts) for name in SIZES}
    if case == "tags":
        source = tiny.conll_source(tag_column=-1, separator="whitespace")
        config = tiny.tagging_task(source=source, **tiny.task_fields(max_length=16))
        kind = TokenClassification(config, ("O", "B-x", "I-x"))
        words = {name: [text.split(" ") for text in split[1]] for name, split in splits.items()}
        rows = {}
        for name, of_split in words.items():
            tags = [["B-x" if word == "Sign_1" else "O" for word in row] for row in of_split]
            rows[name] = TaggedRows(splits[name][0], splits[name][0], of_split, tags)
        given = BaselineInputs(kind=kind, train=rows["train"], dev=rows["dev"], tests={"test": rows["test"]})
        return kind, window_tagger(given, thresholds=(0.0, 0.3)), rows["test"]
    if case == "numbers":
        config = RegressionTaskConfig(
            kind="regression", source=finetuning_inputs.table_source(text_pair_column="other"), low=0.0, high=2.0,
            head="linear", pooling="mean", metric="spearman", **tiny.task_fields(max_length=16),
        )  # fmt: skip
        kind = Regression(config, ())
        rows = {name: NumberRows(*split[:3], split[3].astype(np.float64)) for name, split in splits.items()}
    elif case == "several":
        kind = MultiLabel(
            finetuning_inputs.task(multi_label=True, metric="macro_f1"), ("a", "b", "c", "never", "always")
        )
        hot = np.concatenate([np.eye(3, dtype=np.int64), [[0, 1]] * 3], axis=1)
        rows = {name: MultiLabelRows(*split[:3], hot[split[3]]) for name, split in splits.items()}
    else:
        metric = "negative_log_loss" if case == "sharpened" else "accuracy"
        source = finetuning_inputs.table_source(text_pair_column="other" if pairs else None)
        kind = Classification(finetuning_inputs.task(metric=metric, source=source), ("not in train", "a", "b", "c"))
        rows = {
            name: TextRows(*split[:3], 1 + split[3] % (1 if case == "one" else 3)) for name, split in splits.items()
        }
    given = BaselineInputs(kind=kind, train=rows["train"], dev=rows["dev"], tests={"test": rows["test"]})
    return kind, kind.baselines(given), rows["test"]


def write_linear(folder: Path, case: str) -> tuple[Any, Any, Any]:
    """Write the last baseline of a case with its task, as a sweep does; return kind, baseline and test rows."""
    kind, made, test = baselines(case)
    folder.mkdir(parents=True)
    made[-1].save(folder)
    write_task_file(folder, kind, {"threshold": 0.9} if case == "several" else {})
    return kind, made[-1], test
