"""Passages from text files and tables."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tiny
from bertline.kinds.fill_mask import FillMask, FillMaskTaskConfig
from bertline.tasks.source_config import PlainTextSourceConfig


def config(path, source=None, **changes):
    fields = {
        "kind": "text", "path": str(path), "train_file": None, "dev_file": None, "test_file": None,
        "text_column": "text", "encoding": "utf-8-sig", "on_bad_row": "error",
    }  # fmt: skip
    task = {
        "kind": "fill_mask", "source": PlainTextSourceConfig(**{**fields, **(source or {})}), "top_k": 5,
        "mask_prob": 0.15, "max_scored_tokens": 8, "metric": "top1_accuracy",
        **tiny.task_fields(max_length=32, dev_fraction=0.2, test_fraction=0.2, split_seed=0),
    }  # fmt: skip
    return FillMaskTaskConfig(**{**task, **changes})


def fill_mask_task(made_of):
    return FillMask.build("blanks", made_of)


def all_texts(task):
    return sorted(text for rows in task.splits.values() for text in rows.texts)


TEXTS = [f'passage, "number"\t{i} stands here' for i in range(50)]


def write(path, texts):
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": texts}), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    elif path.suffix == ".csv":
        rows = ['"' + text.replace('"', '""') + '"' for text in texts]
        path.write_text("\n".join(["text", *rows]) + "\n", encoding="utf-8")
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress("\n".join(texts).encode()))
    else:
        path.write_text("\ufeff" + "\r\n \r\n".join(texts) + "\r\n\r\n", encoding="utf-8")


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl", "a.csv", "a.parquet"])
def test_the_same_passages_come_out_of_every_format(tmp_path, name):
    write(tmp_path / name, TEXTS)
    task = fill_mask_task(config(tmp_path / name))
    assert all_texts(task) == sorted(TEXTS)
    assert task.labels == ()
    assert all(len(rows) >= 5 for rows in task.splits.values())
    ids = [row for rows in task.splits.values() for row in rows.ids]
    assert len(set(ids)) == 50 and all(row.startswith(f"{name}:") for row in ids)


def test_equal_passages_are_on_one_side_and_the_order_is_that_of_the_seed(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join([*TEXTS, *(text.upper() for text in TEXTS)]))
    task = fill_mask_task(config(tmp_path / "a.txt"))
    sides = {split: {text.casefold() for text in rows.texts} for split, rows in task.splits.items()}
    assert not (sides["train"] & sides["test"] or sides["train"] & sides["dev"] or sides["dev"] & sides["test"])
    assert sum(len(rows) for rows in task.splits.values()) == 100
    again, other = (fill_mask_task(config(tmp_path / "a.txt", split_seed=seed)) for seed in (0, 1))
    assert again.splits["train"].ids == task.splits["train"].ids != other.splits["train"].ids
