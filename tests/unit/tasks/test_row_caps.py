"""Caps on the rows of dev and test, for sources of every kind; and one file that all splits are cut from."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import search_inputs
import tiny
from bertline.kinds.build import build_task
from bertline.kinds.reranking import RerankingTaskConfig
from bertline.kinds.token_classification import TokenClassificationTaskConfig
from bertline.tasks.source_files import capped
from bertline.tasks.stored_rows import read_task_manifest
from corpora import NO_PACKAGES
from finished_tasks import config_of

NUM_ROWS = 60


def sentence(number: int) -> str:
    return f"word{number} is near word{number + 7} in text number{number}."


def conll(path: Path, **fields: Any) -> TokenClassificationTaskConfig:
    path.write_text("".join(f"word{n}\tB-X\nrests\tO\n\n" for n in range(NUM_ROWS)))
    return tiny.tagging_task(source=tiny.conll_source(path=str(path)), window_overlap=2, **fields)


def answers(path: Path, **fields: Any) -> RerankingTaskConfig:
    rows = [f"question {n},{sentence(n + right)},{right}" for n in range(NUM_ROWS) for right in (0, 1)]
    path.write_text("\n".join(["query,text,label", *rows]) + "\n")
    columns = {"query_column": "query", "text_column": "text", "label_column": "label"}
    return config_of("reranking", {"path": str(path), **columns}, num_candidates=2, **fields)


SOURCES = {"rows.conll": conll, "rows.csv": answers}


@pytest.mark.parametrize("name", SOURCES)
def test_one_file_is_split_three_ways_and_dev_and_test_can_be_capped(tmp_path: Path, name: str) -> None:
    def counts(folder: str, **changes: Any) -> dict[str, Any]:
        fields = tiny.task_fields(dev_fraction=0.3, test_fraction=0.3, **changes)
        build_task("task", SOURCES[name](tmp_path / name, **fields), NO_PACKAGES, tmp_path / folder)
        return read_task_manifest(tmp_path / folder)

    whole = counts("whole")["counts"]
    assert sum(whole.values()) == NUM_ROWS
    assert min(whole.values()) > 5
    some = counts("some", max_dev_rows=3, max_test_rows=4)
    assert some["counts"] == {**whole, "dev": 3, "test": 4}
    assert some["dropped"]["dev_row_above_max_dev_rows"] == whole["dev"] - 3
    assert some["dropped"]["test_row_above_max_test_rows"] == whole["test"] - 4


def test_what_stays_is_a_sample_that_grows_with_the_cap_and_keeps_its_order() -> None:
    config = search_inputs.retrieval(search_inputs.beir_source(""))
    rows = [f"row {number}" for number in range(200)]
    dropped = Counter[str]()
    few, more = (capped(rows, str, "dev", replace(config, max_dev_rows=n), dropped) for n in (10, 40))
    assert set(few) < set(more)
    assert more == [row for row in rows if row in set(more)]
    assert more != rows[:40]
    assert capped(rows[::-1], str, "dev", replace(config, max_dev_rows=40), dropped) == more[::-1]
    assert capped(rows, str, "train", replace(config, max_dev_rows=1, max_test_rows=1), dropped) == rows
    assert capped(rows, str, "test_other", replace(config, max_test_rows=5), dropped) != rows[:5]
    assert dropped == {"dev_row_above_max_dev_rows": 190 + 160 + 160, "test_other_row_above_max_test_rows": 195}
    assert capped(rows, str, "dev", config, dropped) == rows
